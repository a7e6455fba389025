#!/bin/sh
# systemd-nspawn as rkt's flavor host calls it, with what it does not know to say. BOOT
# is for the systemd in the pod, which reads its arguments as those of a kernel.
boot=
for arg; do
	shift
	case $arg in
	--boot) boot='BOOT' ;;
	--register=true)
		set -- "$@" REGISTER
		continue
		;;
	esac
	set -- "$@" "$arg"
done
# shellcheck disable=SC2086 # words
exec 'REAL' "$@" $boot
