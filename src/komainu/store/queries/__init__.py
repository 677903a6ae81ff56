"""SQL, per room. Each function gets a connection inside a transaction that store/sql.py has opened."""
