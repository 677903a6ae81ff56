"""The bed's configuration files, as text.

Keys that look odd are there because the bed does not start, or lies, without them; each says why.
"""

from __future__ import annotations

import socket

from tests.beds.slurm.options import Bedding, Layout

CPUS = 64
DB_PASSWORD = "bed"


def host() -> str:
    return socket.gethostname().partition(".")[0]


def slurmdbd_conf(bedding: Bedding, at: Layout) -> str:
    return f"""\
AuthType=auth/munge
AuthInfo=socket={at.munge_socket}
DbdHost={host()}
DbdAddr=127.0.0.1
DbdPort={bedding.ports.dbd}
SlurmUser={bedding.user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={bedding.ports.mysql}
StorageUser=slurm
StoragePass={DB_PASSWORD}
StorageLoc=slurm_acct_db
LogFile={at.root}/log/slurmdbd.log
PidFile={at.root}/run/slurmdbd.pid
DebugLevel={bedding.options.debug}
CommitDelay=0
"""


def slurm_conf(bedding: Bedding, at: Layout) -> str:
    return "".join(
        (
            _identity(bedding, at),
            _behaviour(bedding),
            _hooks(bedding, at),
            _accounting(bedding, at),
            _nodes(bedding),
        )
    )


def _identity(bedding: Bedding, at: Layout) -> str:
    return f"""\
ClusterName={bedding.options.cluster}
SlurmctldHost={host()}(127.0.0.1)
SlurmctldPort={bedding.ports.ctld}
SlurmUser={bedding.user}
SlurmdUser={bedding.user}
AuthType=auth/munge
AuthInfo=socket={at.munge_socket},cred_expire={bedding.options.cred_expire_s}
CredType=cred/munge
StateSaveLocation={at.root}/state
SlurmdSpoolDir={at.root}/spool/%n
SlurmctldPidFile={at.root}/run/slurmctld.pid
SlurmdPidFile={at.root}/run/slurmd.%n.pid
SlurmctldLogFile={at.root}/log/slurmctld.log
SlurmdLogFile={at.root}/log/slurmd.%n.log
SlurmctldDebug={bedding.options.debug}
SlurmdDebug={bedding.options.debug}
"""


def _behaviour(bedding: Bedding) -> str:
    # config_overrides: believe the CPUs and memory below; NoInAddrAny: several beds on loopback.
    nohold = ",nohold_on_prolog_fail" if bedding.options.nohold_on_prolog_fail else ""
    return f"""\
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0,\
sched_max_job_start=0{nohold}
PriorityType=priority/basic
GresTypes=gpu
ReturnToService=1
SlurmdTimeout={bedding.options.slurmd_timeout_s}
SlurmctldTimeout=30
MessageTimeout=10
KillWait=2
MinJobAge=300
InactiveLimit=0
Waittime=0
ResumeTimeout=60
BatchStartTimeout=10
JobRequeue=1
JobAcctGatherType=jobacct_gather/linux
"""


def _hooks(bedding: Bedding, at: Layout) -> str:
    lines = [
        "PrologFlags=Alloc",
        f"Prolog={at.root}/hooks/prolog",
        f"Epilog={at.root}/hooks/epilog",
    ]
    if bedding.options.healthcheck:
        lines += [
            f"HealthCheckProgram={at.root}/hooks/healthcheck",
            f"HealthCheckInterval={bedding.options.healthcheck_interval_s}",
            "HealthCheckNodeState=ANY",
        ]
    return "\n".join(lines) + "\n"


def _accounting(bedding: Bedding, at: Layout) -> str:
    if not bedding.options.accounting:
        return ""
    # AccountingStoragePass must name our munge socket: AuthInfo alone is not enough.
    return f"""\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={bedding.ports.dbd}
AccountingStoragePass={at.munge_socket}
AccountingStorageTRES=gres/gpu
"""


def _nodes(bedding: Bedding) -> str:
    gpus = f" Gres=gpu:h100:{bedding.options.gpus}" if bedding.options.gpus else ""
    lines = [
        f"NodeName={name} NodeHostname={host()} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} "
        f"Boards=1 SocketsPerBoard=2 CoresPerSocket={CPUS // 2} ThreadsPerCore=1 "
        f"RealMemory=1000000{gpus} Feature=rack{index // 4} State=UNKNOWN"
        for index, (name, port) in enumerate(zip(bedding.names, bedding.ports.nodes, strict=True))
    ]
    return "\n".join([*lines, "PartitionName=gpu Nodes=ALL Default=YES MaxTime=7-0 State=UP", ""])


def gres_conf(bedding: Bedding, at: Layout) -> str:
    """`File=` naming character devices is the only form for which slurmd believes in GPUs."""
    if not bedding.options.gpus:
        return ""
    return (
        f"NodeName={','.join(bedding.names)} Name=gpu Type=h100 "
        f"File={at.root}/dev/nvidia[0-{bedding.options.gpus - 1}]\n"
    )


def hook(kind: str, program: str, at: Layout) -> str:
    """The wrapper slurmd runs as `kind`: it says which node this is, since all share one host.

    A file `fail-prolog` (…) in the node's directory makes it fail there: that is how tests break
    a node. A hook may have almost no environment, so everything is set here.
    """
    run = f'exec {program} "$@"' if program else "exit 0"
    return f"""\
#!/bin/sh
own="{at.root}/nodes/$SLURMD_NODENAME"
export KOMAINU_GATE_CONF="$own/gate.conf" SLURM_CONF="{at.conf}"
[ -e "$own/fail-{kind}" ] && exit 1
{run}
"""
