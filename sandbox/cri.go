package sandbox

import "strconv"

// The part of CRI's runtime.v1.PodSandboxConfig that is read here, with CRI's field numbers.
// k8s.io/cri-api would link gRPC and the descriptors of all of CRI.

// PodSandboxConfig describes a pod.
type PodSandboxConfig struct {
	Hostname    string                `protobuf:"bytes,2"`
	DnsConfig   *DNSConfig            `protobuf:"bytes,4"`
	Labels      map[string]string     `protobuf:"bytes,6"`
	Annotations map[string]string     `protobuf:"bytes,7"`
	Linux       LinuxPodSandboxConfig `protobuf:"bytes,8"`
}

// DNSConfig is the pod's resolv.conf.
type DNSConfig struct {
	Servers  []string `protobuf:"bytes,1"`
	Searches []string `protobuf:"bytes,2"`
	Options  []string `protobuf:"bytes,3"`
}

// LinuxPodSandboxConfig has what only pods of Linux have.
type LinuxPodSandboxConfig struct {
	CgroupParent    string                      `protobuf:"bytes,1"`
	SecurityContext LinuxSandboxSecurityContext `protobuf:"bytes,2"`
	Sysctls         map[string]string           `protobuf:"bytes,3"`
	Overhead        *LinuxContainerResources    `protobuf:"bytes,4"`
	Resources       *LinuxContainerResources    `protobuf:"bytes,5"`
}

// LinuxSandboxSecurityContext has the pod's isolation.
type LinuxSandboxSecurityContext struct {
	NamespaceOptions NamespaceOption `protobuf:"bytes,1"`
	SelinuxOptions   *SELinuxOption  `protobuf:"bytes,2"`
	Privileged       bool            `protobuf:"varint,6"`
}

// NamespaceOption says which namespaces a pod shares with its host.
type NamespaceOption struct {
	Network       NamespaceMode  `protobuf:"varint,1"`
	Pid           NamespaceMode  `protobuf:"varint,2"`
	Ipc           NamespaceMode  `protobuf:"varint,3"`
	UsernsOptions *UserNamespace `protobuf:"bytes,5"`
}

// UserNamespace has the pod's user namespace.
type UserNamespace struct {
	Mode NamespaceMode `protobuf:"varint,1"`
	Uids []*IDMapping  `protobuf:"bytes,2"`
	Gids []*IDMapping  `protobuf:"bytes,3"`
}

// IDMapping maps a range of ids.
type IDMapping struct {
	HostId      uint32 `protobuf:"varint,1"`
	ContainerId uint32 `protobuf:"varint,2"`
	Length      uint32 `protobuf:"varint,3"`
}

// SELinuxOption is a label of SELinux.
type SELinuxOption struct {
	User  string `protobuf:"bytes,1"`
	Role  string `protobuf:"bytes,2"`
	Type  string `protobuf:"bytes,3"`
	Level string `protobuf:"bytes,4"`
}

// LinuxContainerResources has limits of a pod.
type LinuxContainerResources struct {
	CpuPeriod          int64 `protobuf:"varint,1"`
	CpuQuota           int64 `protobuf:"varint,2"`
	CpuShares          int64 `protobuf:"varint,3"`
	MemoryLimitInBytes int64 `protobuf:"varint,4"`
}

// NamespaceMode says whose namespace is used.
type NamespaceMode int32

// The modes of CRI.
const (
	ModePod NamespaceMode = iota
	ModeContainer
	ModeNode
	ModeTarget
)

// String returns CRI's name of a mode.
func (m NamespaceMode) String() string {
	names := [...]string{"POD", "CONTAINER", "NODE", "TARGET"}
	if m < 0 || int(m) >= len(names) {
		return strconv.Itoa(int(m))
	}
	return names[m]
}
