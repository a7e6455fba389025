package main

import (
	"slices"
	"strings"
	"testing"
)

func TestModulesAreLoadedAfterThoseThatTheyNeed(t *testing.T) {
	needs := dependencies(`kernel/net/core/failover.ko:
kernel/drivers/net/net_failover.ko: kernel/net/core/failover.ko
kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko
kernel/drivers/char/hw_random/virtio-rng.ko:
`)
	if got := installed(needs["virtio_net"]); !slices.Equal(got, []string{"failover.ko", "net_failover.ko", "virtio_net.ko"}) {
		t.Errorf("virtio_net is loaded by %q", got)
	}
	if needs["virtio_rng"] == nil {
		t.Error("the kernel's name of virtio-rng.ko is unknown")
	}
}

func TestAKernelOfAnotherFormIsRefused(t *testing.T) {
	image := make([]byte, 1024)
	copy(image[0x202:], "HdrS")
	for want, image := range map[string][]byte{
		"no bzImage":            make([]byte, 1024),
		"truncated":             append(slices.Clone(image[:0x24c]), 255, 255, 255, 255, 0, 0),
		"not compressed by lz4": append(append(slices.Clone(image[:0x24c]), 8, 0, 0, 0), make([]byte, 1024)...),
	} {
		if _, err := extract(t.Context(), image); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, without %q", err, want)
		}
	}
}
