module github.com/rkt/containerd-shim-rkt-v1/integration/oldrunc/v1.0.0-rc6

go 1.26.0

tool github.com/opencontainers/runc

require github.com/opencontainers/runc v1.0.0-rc6 // indirect

require github.com/coreos/go-systemd v0.0.0-20161114122254-48702e0da86b // indirect

require github.com/opencontainers/runtime-spec v1.0.2 // indirect

require github.com/opencontainers/selinux v1.2.2 // indirect

require (
	github.com/containerd/console v1.0.5 // indirect
	github.com/coreos/pkg v0.0.0-20240122114842-bbd7aa9bf6fb // indirect
	github.com/cpuguy83/go-md2man/v2 v2.0.7 // indirect
	github.com/cyphar/filepath-securejoin v0.2.1 // indirect
	github.com/docker/go-units v0.5.0 // indirect
	github.com/godbus/dbus v4.1.0+incompatible // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/mrunalp/fileutils v0.5.1 // indirect
	github.com/pkg/errors v0.9.1 // indirect
	github.com/russross/blackfriday/v2 v2.1.0 // indirect
	github.com/seccomp/libseccomp-golang v0.11.1 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	github.com/syndtr/gocapability v0.0.0-20200815063812-42c35b437635 // indirect
	github.com/urfave/cli v1.22.17 // indirect
	github.com/vishvananda/netlink v1.3.1 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)
