"""Alembic's entry: runs in the transaction that connect.py has opened, and never on its own."""

from alembic import context

from komainu.store.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
context.run_migrations()
