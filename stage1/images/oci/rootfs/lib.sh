# shellcheck shell=sh
# Functions of all entrypoints of this stage1. It is sourced, with the pod directory
# as the working directory and the environment of docs/stage1-abi.md.
#
#	rkt/oci/stop            a fifo: a line in it ends the supervisor
#	rkt/oci/supervisor      "PID START" of the supervisor
#	rkt/oci/boot            id of the boot that it belongs to
#	rkt/oci/apps/APP/id     the OCI runtime's name of the app, which is containerd's id,
#	                        and a directory of its cgroup
#	rkt/oci/apps/APP/run    the OCI runtime's own state
#	rkt/oci/apps/APP/init   "PID START" of the app's first process
#	rkt/oci/apps/APP/criu/  criu's logs; with a file `restored` if the app was
#	                        restored and its processes are still stopped
#	rkt/oci/holder          as apps/APP, of the process that holds a sandbox
set -u
# containerd's PATH may lack the system's programs. The OCI runtime is one of containerd's PATH.
given=$PATH
PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin
# What rkt's stage 0 calls is not for these scripts.
[ -n "${RKT_STAGE1_REQUEST:-}" ] || exec "${0%/*}/rktfront" "$0" "$@"
state=stage1/rootfs/rkt/oci
app=$state/apps/${RKT_APP:-}

# The runtime needs absolute paths, and the pod directory may be renamed.
here=/proc/$$/cwd
case ${RKT_CONSOLE_SOCKET:-/} in
/*) ;;
*) RKT_CONSOLE_SOCKET=$here/$RKT_CONSOLE_SOCKET ;;
esac

# Redirections that close our own descriptors.
own=
for fd in "$RKT_ERROR_FD" ${RKT_READY_FD:-} ${RKT_LOCK_FD:-} ${RKT_NOTIFY_FD:-}; do
	own="$own $fd>&-"
done

# fail TEXT [CODE]: the text becomes the error of the RPC.
fail() {
	printf '%s\n' "$1" >&"$RKT_ERROR_FD"
	exit "${2:-1}"
}

# chosen: sets runtime to the first OCI runtime of this image that is installed, and its
# flags.
chosen() {
	runtime=''
	while [ -z "$runtime" ] && read -r name flags; do
		case $name in '' | '#'*) ;; *) runtime=$(PATH=$given command -v "$name") ;; esac
	done <"${0%/*}/runtimes"
	[ -n "$runtime" ] || {
		echo "there is no OCI runtime in $given: install runc or crun" >&"$RKT_ERROR_FD"
		return 1
	}
	root=$here
	[ "${runtime##*/}" != runsc ] || root=$PWD # runsc stores the path of its state
}

# capable: prints what the runtime says of itself, without white space.
capable() {
	# shellcheck disable=SC2086 # flags
	said=$("$runtime" $flags features 2>/dev/null) && printf '%s' "$said" | tr -d ' \n\t'
}

# oci ARG...: runs the OCI runtime with our fds 0 to 2 and no others, so that no process of
# it keeps them. The errors that it logs become the error of the RPC.
oci() {
	chosen || return
	# On a full or read-only disk the runtime must still be able to end processes.
	log=$here/$app/log.$$ lost=''
	if ! echo 2>/dev/null >"$log"; then
		why=$( { env printf '\n' >"$log"; } 2>&1) # the shell's own echo does not say why
		log='' lost="; its error is lost, because $PWD/$app cannot be written to: ${why##*: }"
	fi
	enter=$(unentered) shown=''
	[ -z "$enter" ] || shown=entered
	! hybrid || shown=version1
	eval "$shown"' "$runtime" $flags --root "$root/$app/run" --log "${log:-/dev/null}" --log-format json "$@"' "$own"
	code=$?
	if [ "$code" -ne 0 ]; then
		words=$(sed -nE '/"level":"error"/s/.*"msg":"(([^"\\]|\\.)*)".*/\1/p' "${log:-/dev/null}" 2>/dev/null |
			sed -E 's/\\u003c/</g; s/\\u003e/>/g; s/\\u0026/\&/g; s/\\n/ /g; s/\\(.)/\1/g' | familiar)
		printf '%s\n' "${words:-$runtime ended with code $code, and without a word$lost}" >&"$RKT_ERROR_FD"
	fi
	[ -z "$log" ] || rm -f "$log" 2>/dev/null
	return "$code"
}

# use_all_cpus: lets the processes that follow run on each CPU that their cgroups allow, as runc does since 1.2.7, and not on
# those of containerd only.
use_all_cpus() {
	while read -r name allowed; do [ "$name" != Cpus_allowed_list: ] || break; done </proc/self/status
	read -r all </sys/devices/system/cpu/possible && [ "$allowed" != "$all" ] || return 0
	taskset --pid --cpu-list "$all" $$ >/dev/null 2>&1 || :
}

# create ARG...: oci create, of RKT_BUNDLE. crun 1.8, Debian 12's, accepts only version 1.0 of
# the specification. Stage 0 has checked every field of a later version.
create() {
	chosen || return
	use_all_cpus
	[ "${runtime##*/}" != crun ] || {
		(umask 077 && sed -E 's/"ociVersion" *: *"1\.[^"]*"/"ociVersion":"1.0.2"/' "$RKT_BUNDLE/config.json" >"$app/config.json") 2>&"$RKT_ERROR_FD" || return
		set -- --config "$here/$app/config.json" "$@"
	}
	oci create --bundle "$RKT_BUNDLE" "$@"
	created=$?
	rm -f "$app/config.json" 2>&"$RKT_ERROR_FD"
	return "$created"
}

# familiar: translates errors of crun and runsc into the texts that clients look for.
# crun reports EPERM for a program that is not a regular file.
familiar() {
	# shellcheck disable=SC2016 # a text of the runtime
	sed -E 's/^\{"msg":"(([^"\\]|\\.)*)".*/\1/
		s/executable file `(\/[^`]*)` not found in \$PATH: .*/exec: "\1": no such file or directory/
		s/executable file `([^`]*)` not found in \$PATH: .*/exec: "\1": executable file not found in $PATH/
		s/.*error finding executable ("[^"]*") in PATH .*/exec: \1: executable file not found in $PATH/
		s/^(open executable): (Permission denied|Operation not permitted)/\1: permission denied/'
}

# hybrid: succeeds if the runtime is crun and the host has controllers in both versions of
# cgroups. crun refuses such a host, even if it needs no controller of version 2.
hybrid() {
	[ "${runtime##*/}" = crun ] && read -r controllers 2>/dev/null </sys/fs/cgroup/unified/cgroup.controllers && [ -n "$controllers" ]
}

# unentered: prints the files by which a process enters those of the app's cgroups that the runtime does not
# enter by itself. On a host with version 1 these are hierarchies that it does not know, such as name=openrc or, with runc 1.1.5
# of Debian 12, misc, and the one of version 2, unless the runtime is runc and finds it at its usual place.
unentered() {
	case ${RKT_CGROUP_UNIFIED:-} in
	'') ;;
	/sys/fs/cgroup/unified/*) [ "${runtime##*/}" = runc ] || echo "$RKT_CGROUP_UNIFIED/cgroup.procs" ;;
	*) echo "$RKT_CGROUP_UNIFIED/cgroup.procs" ;;
	esac
	rest=${RKT_CGROUP:+$RKT_CGROUP:}
	while [ -n "$rest" ]; do
		dir=${rest%%:*} rest=${rest#*:}
		name=${dir#/sys/fs/cgroup/}
		case ,${name%%/*}, in
		*,cpu,* | *,cpuacct,* | *,cpuset,* | *,memory,* | *,pids,* | *,blkio,* | *,devices,* | *,freezer,* | \
			*,hugetlb,* | *,perf_event,* | *,net_cls,* | *,net_prio,* | *,rdma,* | *,systemd,*) ;;
		*) [ ! -f "$dir/tasks" ] || echo "$dir/tasks" ;; # version 2 has no such file
		esac
	done
}

# enters is the beginning of a script that enters the cgroups of `enter`. The app's processes inherit
# them from the runtime.
# shellcheck disable=SC2016 # for the other shell
enters='[ -z "$enter" ] || while IFS= read -r file; do echo 0 >"$file" || exit; done 2>/dev/null <<END
$enter
END
'

# entered COMMAND...: runs a command in the cgroups of `enter`.
entered() {
	enter=$enter sh -c "$enters"'exec "$@"' sh "$@"
}

# version1 COMMAND...: is entered in a mount namespace that shows only version 1. All
# other mounts in it stay peers of the originals.
version1() {
	enter=$enter unshare --mount --propagation unchanged sh -c '
		for at in /sys/fs/cgroup /sys/fs/cgroup/unified; do mount --make-private "$at" || exit; done
		'"$enters"'umount -l /sys/fs/cgroup/unified && exec "$@"' sh "$@"
}

# criu_works: fails with 7 and the reason if criu cannot write and restore processes.
criu_works() {
	chosen || exit 1
	[ "${runtime##*/}" != crun ] || "$runtime" --version | grep -q '+CRIU' || fail "$runtime is built without criu" 7
	command -v criu >/dev/null || fail "there is no criu in the PATH of containerd: install criu" 7
	why=$(criu check 2>&1) || fail "criu does not work here: $(printf '%s\n' "$why" | grep Error | head -n 1)" 7
}

# with_criu VERB ARG...: like oci, but a failure has criu's errors. criu's log is kept in the
# bundle.
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

# look PID: succeeds if there is such a process; sets its state (how), the kernel's flags (marks)
# and its start time.
look() {
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return
	# shellcheck disable=SC2086 # fields 3 and up, after the name that the app chose
	set -- ${stat##*) }
	how=$1 marks=$7 start=${20}
}

# living FILE: succeeds if the process that FILE names is running; sets pid.
living() {
	read -r pid was 2>/dev/null <"$1" && look "$pid" && [ "$start" = "$was" ] && [ "$how" != Z ] && [ "$how" != X ]
}

# executed PID: waits until the process has executed the program, because the runtime
# returns before that: it closes its descriptors before the exec. Fails if the exec has
# failed. The kernel knows which: runtimes fork the process, and PF_FORKNOEXEC (0x40) is set until it
# executes a program. The names of programs, in /proc/PID too, are the app's to choose.
executed() {
	looks=0
	while look "$1" && [ $((marks & 64)) -ne 0 ]; do
		[ "$how" != Z ] || return 1
		[ $((looks += 1)) -le 10 ] || sleep 0.01
	done
}

# ready PID [FILE]: notes a process in FILE, and reports it.
ready() {
	look "$1" || return
	[ -z "${2:-}" ] || echo "$1 $start" >"$2"
	printf '{"pid": %d, "starttime": %d}\n' "$1" "$start" >&"$RKT_READY_FD"
}

# forget: kills the app's processes and removes its files, inside and outside of the pod.
# After an app/add that was killed half-way the runtime may know neither the app nor the
# cgroup of version 2 that it has made on a hybrid host.
forget() {
	read -r id dir 2>/dev/null <"$app/id" || id='' dir=''
	[ ! -d "$app/run" ] || oci delete --force "$id" >/dev/null 2>&1 || return
	[ -f "$app/init" ] || [ -z "$dir" ] || rmdir "/sys/fs/cgroup/unified/${dir#/sys/fs/cgroup/*/}" 2>/dev/null
	# A runc that was killed while it bind-mounted its own binary there has left the mount,
	# and runsc always leaves an empty network namespace there.
	for bound in "$app/run/"*/runc.* "$app/run/null-netns"; do
		[ ! -e "$bound" ] || umount -l "$bound" 2>/dev/null
	done
	rm -rf "$app" 2>&"$RKT_ERROR_FD"
}

# boot_id: sets boot to the id of this boot. A part of /proc may be hidden.
boot_id() {
	read -r boot 2>/dev/null </proc/sys/kernel/random/boot_id || boot=$("${0%/*}/rktfront" boot-id 2>&"$RKT_ERROR_FD")
}

# forget_all: does app/stop and app/rm for every app. After a reboot nothing of the pod is
# left outside of its directory, and cgroups of these paths belong to other pods.
forget_all() {
	read -r was 2>/dev/null <"$state/boot" && boot_id && [ "$boot" = "$was" ] || return 0
	for app in "$state"/apps/* "$state/holder"; do
		[ ! -d "$app" ] || forget
	done
}
