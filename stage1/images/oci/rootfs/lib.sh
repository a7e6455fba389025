# What every entrypoint of this stage1 needs. Sourced, with $pod as the working
# directory; see docs/stage1-abi.md.
set -u
runtime=$(command -v runc || command -v crun) || runtime=
state=stage1/rootfs/rkt/oci
log=$state/log.$$

# fail TEXT [CODE]: the text becomes the error of the RPC.
fail() {
	printf '%s\n' "$1" >&"${RKT_ERROR_FD:-2}"
	exit "${2:-1}"
}

# oci ARG...: the OCI runtime. What it logs becomes the error.
oci() {
	[ -n "$runtime" ] || fail "no OCI runtime: install runc or crun"
	"$runtime" --root "$PWD/$state/run" --log "$PWD/$log" "$@"
	code=$?
	text=
	[ ! -s "$log" ] || text=$(sed -n 's/.*level=error msg="\(.*\)"$/\1/p' "$log" | sed 's/\\"/"/g')
	rm -f "$log"
	[ "$code" -eq 0 ] || [ -z "$text" ] || printf '%s\n' "$text" >&"$RKT_ERROR_FD"
	return "$code"
}

# ready FILE: reports the pid in a file that the runtime wrote.
ready() {
	read -r pid <"$1" || [ -n "${pid:-}" ] || fail "the runtime wrote no pid"
	printf '{"pid": %d}\n' "$pid" >&"$RKT_READY_FD"
}
