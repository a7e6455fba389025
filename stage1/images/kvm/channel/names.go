package channel

// Names on which host and agent agree.
const (
	PortName   = "org.rkt.agent" // of the virtio-serial port
	RootsTag   = "roots"         // of the virtiofs share with the roots of the pod's apps
	ShareTag   = "pod"           // of the virtiofs share with the other files of the pod's apps
	GuestDisks = "/disks"        // below it the agent mounts the disks of each app, in a directory of the app's name
	GuestShm   = "/run/shm"      // below it the agent mounts the shared memory of pods
	GuestNodes = "/dev/volumes"  // below it the agent makes the nodes of the volumes of each app
	GuestRoots = "/roots"        // where the agent mounts the share of roots
	GuestShare = "/shared"       // where the agent mounts the other one

	// Where the agent mounts the user namespace of the pod and the network namespace that belongs to it.
	GuestUser    = "/run/namespaces/user"
	GuestNetwork = "/run/namespaces/net"
)
