# shellcheck shell=sh
# What the entrypoints of this stage1 share. It is sourced, with the pod directory
# as the working directory and the environment of docs/stage1-abi.md.
#
#	rkt/oci/stop            a fifo: a line in it ends the supervisor
#	rkt/oci/supervisor      "PID START" of the supervisor
#	rkt/oci/boot            id of the boot that it belongs to
#	rkt/oci/apps/APP/id     what the OCI runtime calls the app, containerd's id,
#	                        and a directory of its cgroup
#	rkt/oci/apps/APP/run    the OCI runtime's own state
#	rkt/oci/apps/APP/init   "PID START" of the app's first process
#	rkt/oci/apps/APP/criu/  what criu has to say; with restored in it, of an app that
#	                        was restored and whose processes are stopped
#	rkt/oci/holder          as apps/APP, of the process that holds a sandbox
set -u
# Interface version 6 has no request. What it lacks is made up for by a program, which
# calls these entrypoints as version 7 has it.
if [ -z "${RKT_STAGE1_REQUEST:-}" ]; then
	case ${0##*/} in
	run | gc) RKT_ERROR_FD=2 ;;
	*) exec "${0%/*}/version6" "${0##*/}" "$@" ;;
	esac
fi
state=stage1/rootfs/rkt/oci
app=$state/apps/${RKT_APP:-}

# The runtime wants absolute paths, and the pod directory may be renamed.
here=/proc/$$/cwd
case ${RKT_CONSOLE_SOCKET:-/} in
/*) ;;
*) RKT_CONSOLE_SOCKET=$here/$RKT_CONSOLE_SOCKET ;;
esac

# What closes our own descriptors.
own=
for fd in "$RKT_ERROR_FD" ${RKT_READY_FD:-} ${RKT_LOCK_FD:-} ${RKT_NOTIFY_FD:-}; do
	own="$own $fd>&-"
done

# fail TEXT [CODE]: the text becomes the error of the RPC.
fail() {
	printf '%s\n' "$1" >&"$RKT_ERROR_FD"
	exit "${2:-1}"
}

# oci ARG...: the OCI runtime, with our fds 0 to 2 and no others, so that nothing
# it leaves behind has them. What it logs as an error becomes the error of the RPC.
oci() {
	runtime=''
	# shellcheck disable=SC2034 # eval uses flags
	while [ -z "$runtime" ] && read -r name flags; do
		case $name in '' | '#'*) ;; *) runtime=$(command -v "$name") ;; esac
	done <"${0%/*}/runtimes"
	[ -n "$runtime" ] || {
		echo "there is no OCI runtime in $PATH: install runc or crun" >&"$RKT_ERROR_FD"
		return 1
	}
	log=$app/log.$$
	eval '"$runtime" $flags --root "$here/$app/run" --log "$here/$log" --log-format json "$@"' "$own"
	code=$?
	if [ "$code" -ne 0 ]; then
		words=$(sed -nE '/"level":"error"/s/.*"msg":"(([^"\\]|\\.)*)".*/\1/p' "$log" 2>/dev/null |
			sed -E 's/\\u003c/</g; s/\\u003e/>/g; s/\\u0026/\&/g; s/\\n/ /g; s/\\(.)/\1/g')
		printf '%s\n' "${words:-$runtime ended with code $code, and without a word}" >&"$RKT_ERROR_FD"
	fi
	rm -f "$log" 2>/dev/null
	return "$code"
}

# criu_works: fails with 7, and says why, where processes cannot be written and restored.
criu_works() {
	command -v criu >/dev/null || fail "there is no criu in the PATH of containerd: install criu" 7
	why=$(criu check 2>&1) || fail "criu does not work here: $(printf '%s\n' "$why" | grep Error | head -n 1)" 7
}

# with_criu VERB ARG...: as oci, and says what criu says if that fails. Its log is kept in
# the bundle.
with_criu() {
	verb=$1
	shift
	mkdir -p "$app/criu" 2>&"$RKT_ERROR_FD" || return
	oci "$verb" --work-path "$here/$app/criu" "$@" && return
	for log in dump restore; do
		[ -f "$app/criu/$log.log" ] || continue
		grep -h Error "$app/criu/$log.log" | head -n 3 >&"$RKT_ERROR_FD"
		cp "$app/criu/$log.log" "$RKT_BUNDLE/criu-$log.log" 2>/dev/null
	done
	return 1
}

# look PID: whether there is such a process; sets how it is and when it started.
look() {
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
	# shellcheck disable=SC2086 # fields 3 and up, behind the name that the app chose
	set -- ${stat##*) }
	how=$1 start=${20}
}

# living FILE: whether the process that FILE names still runs; sets its pid.
living() {
	read -r pid was 2>/dev/null <"$1" && look "$pid" && [ "$start" = "$was" ] && [ "$how" != Z ] && [ "$how" != X ]
}

# executed PID: waits for the moment that runc returns too early, since it closes its
# descriptors before the exec; fails if the exec has failed and that can be seen.
executed() {
	while look "$1" && read -r name 2>/dev/null <"/proc/$1/comm" && [ "$name" = 'runc:[2:INIT]' ]; do
		[ "$how" != Z ] || return 1
	done
}

# ready PID [FILE]: notes a process in FILE, and reports it.
ready() {
	look "$1" || return
	[ -z "${2:-}" ] || echo "$1 $start" >"$2"
	printf '{"pid": %d, "starttime": %d}\n' "$1" "$start" >&"$RKT_READY_FD"
}

# forget: removes what there is of the app, inside and outside of the pod, and
# kills what is left of it. Of an app/add that was killed half-way the runtime may
# not know, nor of the cgroup of version 2 that it makes on a hybrid host.
forget() {
	read -r id dir 2>/dev/null <"$app/id" || id='' dir=''
	[ ! -d "$app/run" ] || oci delete --force "$id" >/dev/null 2>&1 || return
	[ -f "$app/init" ] || [ -z "$dir" ] || rmdir "/sys/fs/cgroup/unified/${dir#/sys/fs/cgroup/*/}" 2>/dev/null
	# One that was killed while it bound its own binary there has left it mounted.
	for bound in "$app/run/"*/runc.*; do
		[ ! -e "$bound" ] || umount -l "$bound" 2>/dev/null
	done
	rm -rf "$app" 2>&"$RKT_ERROR_FD"
}

# forget_all: as app/stop and app/rm of every app. What another boot has left
# outside of the pod went with it: what is there now is somebody else's.
forget_all() {
	read -r boot 2>/dev/null <"$state/boot" && read -r now </proc/sys/kernel/random/boot_id && [ "$boot" = "$now" ] || return 0
	for app in "$state"/apps/* "$state/holder"; do
		[ ! -d "$app" ] || forget
	done
}
