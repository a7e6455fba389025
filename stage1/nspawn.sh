#!/bin/sh
# systemd-nspawn on a machine without D-Bus: there is nobody to register a pod with, and
# it stays in the cgroup that it is in.
for arg; do
	shift
	case $arg in
	--register=true) set -- "$@" --register=no --keep-unit ;;
	*) set -- "$@" "$arg" ;;
	esac
done
exec REAL "$@"
