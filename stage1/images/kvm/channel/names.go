package channel

// Names on which host and agent agree.
const (
	PortName   = "org.rkt.agent" // of the virtio-serial port
	ShareTag   = "pod"           // of the virtiofs share with the files of the pod's apps
	GuestDisks = "/disks"        // below it the agent mounts the disk of each app, at the app's name
	GuestShm   = "/run/shm"      // below it the agent mounts the shared memory of pods
	GuestNodes = "/dev/volumes"  // below it the agent makes the nodes of the volumes of each app
	GuestShare = "/shared"       // where the agent mounts it
)
