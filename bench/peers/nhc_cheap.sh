#!/bin/bash
# Twelve cheap checks in the manner of LBNL NHC (github.com/mej/nhc, version 1.5).
#
# Komainu's own re-creation for bench.gate_latency: nothing is copied from NHC. It is written after
# NHC's style, as its documentation and scripts show it: bash functions, data gathered once into
# arrays through `< <(echo "$DATA")` or the output of df and ps, each check a walk over the arrays, a
# timer in the background. What the real thing does besides (reading its configuration and some
# twenty check files, host matching, logging) is left out, so this is a lower bound of NHC's time.
# The checks ask for what any machine has, so that all twelve run to their end and pass.

FAILED=''
fail() { FAILED="$1"; }
parse_kb() { # 1G → kB
	case $1 in
	*[Gg]) KB=$((${1%?} * 1024 * 1024)) ;;
	*[Mm]) KB=$((${1%?} * 1024)) ;;
	*) KB=$1 ;;
	esac
}

MNT=() MNT_OPT=()
gather_mounts() {
	local -a FIELD
	while read -r -a FIELD; do
		MNT+=("${FIELD[1]}") MNT_OPT+=("${FIELD[3]}")
	done </proc/mounts
}
check_fs_mount_rw() {
	local i
	[[ ${#MNT[@]} -eq 0 ]] && gather_mounts
	for ((i = 0; i < ${#MNT[@]}; i++)); do
		[[ ${MNT[i]} == "$1" && ${MNT_OPT[i]} =~ (^|,)rw(,|$) ]] && return 0
	done
	fail "$1 is not mounted read-write"
}

DF_MNT=() DF_FREE=() DF_PCT=()
gather_df() {
	local OUT LINE
	local -a FIELD
	OUT=$(df -Tka 2>/dev/null)
	while read -r LINE; do
		read -r -a FIELD <<<"$LINE"
		DF_MNT+=("${FIELD[6]}") DF_FREE+=("${FIELD[4]}") DF_PCT+=("${FIELD[5]%\%}")
	done < <(echo "$OUT")
}
check_fs_free() {
	local i
	parse_kb "$2"
	[[ ${#DF_MNT[@]} -eq 0 ]] && gather_df
	for ((i = 1; i < ${#DF_MNT[@]}; i++)); do
		[[ ${DF_MNT[i]} == "$1" && ${DF_FREE[i]} != - ]] || continue
		((${DF_FREE[i]} >= KB)) && return 0
		fail "$1 has too little free"
	done
}

DFI_MNT=() DFI_PCT=()
gather_dfi() {
	local OUT LINE
	local -a FIELD
	OUT=$(df -Tia 2>/dev/null)
	while read -r LINE; do
		read -r -a FIELD <<<"$LINE"
		DFI_MNT+=("${FIELD[6]}") DFI_PCT+=("${FIELD[5]%\%}")
	done < <(echo "$OUT")
}
check_fs_iused() {
	local i
	[[ ${#DFI_MNT[@]} -eq 0 ]] && gather_dfi
	for ((i = 1; i < ${#DFI_MNT[@]}; i++)); do
		[[ ${DFI_MNT[i]} == "$1" && ${DFI_PCT[i]} =~ ^[0-9]+$ ]] || continue
		((${DFI_PCT[i]} <= $2)) || fail "$1 has too few inodes"
	done
}

THREADS=0
gather_cpu() {
	local DATA
	local -a FIELD
	DATA=$(</proc/cpuinfo)
	while read -r -a FIELD; do
		[[ ${FIELD[0]} == processor ]] && ((THREADS++))
	done < <(echo "$DATA")
}
check_hw_cpuinfo() {
	((THREADS)) || gather_cpu
	((THREADS >= $1)) || fail "found $THREADS threads"
}

RAM=0 RAM_FREE=0 SWAP=0
gather_mem() {
	local DATA
	local -a FIELD
	DATA=$(</proc/meminfo)
	while read -r -a FIELD; do
		case ${FIELD[0]} in
		MemTotal:) RAM=${FIELD[1]} ;;
		MemFree: | Buffers: | Cached:) ((RAM_FREE += FIELD[1])) ;;
		SwapTotal:) SWAP=${FIELD[1]} ;;
		esac
	done < <(echo "$DATA")
}
check_hw_physmem() {
	parse_kb "$1"
	((RAM)) || gather_mem
	((RAM >= KB)) || fail "found $RAM kB of memory"
}
check_hw_physmem_free() {
	parse_kb "$1"
	((RAM)) || gather_mem
	((RAM_FREE >= KB)) || fail "found $RAM_FREE kB of free memory"
}
check_hw_swap() {
	((RAM)) || gather_mem
	((SWAP >= $1)) || fail "found $SWAP kB of swap"
}

ETH=()
gather_eth() {
	local DATA
	local -a FIELD
	DATA=$(</proc/net/dev)
	while read -r -a FIELD; do
		[[ ${FIELD[0]} == *:* ]] && ETH+=("${FIELD[0]%%:*}")
	done < <(echo "$DATA")
}
check_hw_eth() {
	local DEV
	((${#ETH[@]})) || gather_eth
	for DEV in "${ETH[@]}"; do [[ $DEV == "$1" ]] && return 0; done
	fail "no device $1"
}

PS_PID=() PS_USER=() PS_ARGS=()
gather_ps() {
	local -a LINES LINE
	local IFS i
	IFS=$'\n'
	LINES=($(COLUMNS=1024 ps axo 'user:32,uid,pid,ppid,pcpu,pmem,rss,vsz,bsdtime,args'))
	IFS=$' \t\n'
	for ((i = 1; i < ${#LINES[@]}; i++)); do
		LINE=(${LINES[i]})
		PS_PID+=("${LINE[2]}") PS_USER+=("${LINE[0]}") PS_ARGS+=("${LINE[*]:9}")
	done
}
check_ps_service() {
	local i
	((${#PS_PID[@]})) || gather_ps
	for ((i = 0; i < ${#PS_PID[@]}; i++)); do
		[[ ${PS_ARGS[i]} == *$1* ]] && return 0
	done
	fail "no process $1"
}
check_ps_unauth_users() {
	local i
	((${#PS_PID[@]})) || gather_ps
	for ((i = 0; i < ${#PS_PID[@]}; i++)); do
		[[ ${PS_USER[i]} == "$1" ]] && fail "process of $1"
	done
	return 0
}

check_ps_loadavg() {
	local -a LOAD
	read -r -a LOAD </proc/loadavg
	((${LOAD[0]%.*} <= $1)) || fail "load ${LOAD[0]}"
}

check_file_test_r() {
	[[ -r $1 ]] || fail "$1 cannot be read"
}

set -f
sleep 30 >/dev/null 2>&1 &
WATCHDOG=$!
check_fs_mount_rw /
check_fs_free / 1
check_fs_iused / 100
check_hw_cpuinfo 1
check_hw_physmem 1M
check_hw_physmem_free 1
check_hw_swap 0
check_hw_eth lo
check_ps_service "${BASH_SOURCE[0]##*/}"
check_ps_unauth_users no-such-user-here
check_ps_loadavg 100000
check_file_test_r /etc/passwd
kill "$WATCHDOG"
[[ -z $FAILED ]] || echo "ERROR: Health check failed: $FAILED"
[[ -z $FAILED ]]
