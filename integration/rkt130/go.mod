module github.com/rkt/containerd-shim-rkt-v1/integration/rkt130

go 1.26.0

require (
	github.com/StackExchange/wmi v1.2.1 // indirect
	github.com/appc/goaci v0.1.0 // indirect
	github.com/appc/spec v0.8.11 // indirect
	github.com/containernetworking/cni v0.3.0 // indirect
	github.com/coreos/go-iptables v0.1.0 // indirect
	github.com/coreos/go-semver v0.1.0 // indirect
	github.com/coreos/go-systemd v0.0.0-20180511133405-39ca1b05acc7 // indirect
	github.com/coreos/pkg v0.0.0-20240122114842-bbd7aa9bf6fb // indirect
	github.com/go-ole/go-ole v1.2.5 // indirect
	github.com/godbus/dbus v4.0.0+incompatible // indirect
	github.com/google/gofuzz v1.2.0 // indirect
	github.com/hashicorp/errwrap v1.0.0 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/kr/pty v1.0.0 // indirect
	github.com/onsi/ginkgo v1.16.5 // indirect
	github.com/onsi/gomega v1.44.0 // indirect
	github.com/rkt/rkt v1.30.0 // indirect
	github.com/shirou/gopsutil v2.16.10+incompatible // indirect
	github.com/shirou/w32 v0.0.0-20160930032740-bb4de0191aa4 // indirect
	github.com/spf13/pflag v1.0.0 // indirect
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/syndtr/gocapability v0.0.0-20200815063812-42c35b437635 // indirect
	github.com/vishvananda/netlink v1.0.0 // indirect
	github.com/vishvananda/netns v0.0.5 // indirect
	go4.org v0.0.0-20260112195520-a5071408f32f // indirect
	golang.org/x/sys v0.40.0 // indirect
	golang.org/x/tools/go/vcs v0.1.0-deprecated // indirect
	gopkg.in/inf.v0 v0.9.0 // indirect
	gopkg.in/yaml.v2 v2.4.0 // indirect
)

tool (
	github.com/containernetworking/cni/plugins/ipam/host-local
	github.com/containernetworking/cni/plugins/main/bridge
	github.com/containernetworking/cni/plugins/main/ipvlan
	github.com/containernetworking/cni/plugins/main/macvlan
	github.com/containernetworking/cni/plugins/main/ptp
	github.com/containernetworking/cni/plugins/meta/flannel
	github.com/containernetworking/cni/plugins/meta/tuning
	github.com/rkt/rkt/stage1/app_add
	github.com/rkt/rkt/stage1/app_rm
	github.com/rkt/rkt/stage1/app_start
	github.com/rkt/rkt/stage1/app_stop
	github.com/rkt/rkt/stage1/attach
	github.com/rkt/rkt/stage1/gc
	github.com/rkt/rkt/stage1/init
	github.com/rkt/rkt/stage1/iottymux
	github.com/rkt/rkt/stage1/stop
	github.com/rkt/rkt/stage1_fly/enter
	github.com/rkt/rkt/stage1_fly/gc
	github.com/rkt/rkt/stage1_fly/run
	github.com/rkt/rkt/stage1_fly/stop
)
