#!/bin/sh
# systemd-nspawn as rkt's flavors call it, with what they do not know to say. BOOT is for
# the systemd in the pod, which reads its arguments as those of a kernel.
boot=
for arg; do
	shift
	case $arg in
	--boot) boot='BOOT' ;;
	--register=*)
		set -- "$@" REGISTER
		continue
		;;
	esac
	set -- "$@" "$arg"
done
UNCOVER
# shellcheck disable=SC2086 # words
exec REAL "$@" $boot
