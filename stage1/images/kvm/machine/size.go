package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// maxCPUs is how many processors a machine of this board can have without interrupt remapping.
const maxCPUs = 255

// memoryBlock is the unit in bytes in which memory is added and taken back.
const memoryBlock = 2 * mebibyte

// moreMemory is the id of the virtio-mem device and of its memory.
const moreMemory = "more"

// checkSize returns an error for a size that no machine can have.
func (c *Config) checkSize() error {
	switch {
	case c.CPUs < 1 || c.CPUs > maxCPUs:
		return fmt.Errorf("it has %d processors, and can have 1 to %d", c.CPUs, maxCPUs)
	case c.MaxCPUs != 0 && (c.MaxCPUs < c.CPUs || c.MaxCPUs > maxCPUs):
		return fmt.Errorf("it has %d processors, and cannot have at most %d", c.CPUs, c.MaxCPUs)
	case c.Memory <= 0 || c.Memory%mebibyte != 0:
		return fmt.Errorf("its memory of %d bytes is no multiple of a MiB", c.Memory)
	case c.MaxMemory != 0 && (c.MaxMemory < c.Memory || (c.MaxMemory-c.Memory)%memoryBlock != 0):
		return fmt.Errorf("it has %d bytes of memory, and cannot have at most %d: the difference is no multiple of 2 MiB", c.Memory, c.MaxMemory)
	}
	return nil
}

// size adds the arguments for processors and memory. Memory that is added later is a part of a second file, which
// virtiofsd maps at boot, too.
func (l *commandLine) size(c *Config) {
	size, more := mebibytes(c.Memory), max(0, c.MaxMemory-c.Memory)
	l.add("-smp", fmt.Sprintf("%d,maxcpus=%d", c.CPUs, max(c.CPUs, c.MaxCPUs)))
	l.add("-object", "memory-backend-file,id=memory,share=on,mem-path=/"+memoryDir+"/"+memoryFile+",size="+size) // in the jail
	if more == 0 {
		l.add("-m", size)
		return
	}
	l.add("-m", size+",maxmem="+mebibytes(c.Memory+more))
	l.add("-object", "memory-backend-memfd,share=on,reserve=off,id="+moreMemory+"-memory,size="+mebibytes(more))
	l.add("-device", "virtio-mem-pci,requested-size=0,block-size=2M,id="+moreMemory+",memdev="+moreMemory+"-memory")
}

func mebibytes(n int64) string { return strconv.FormatInt(n/mebibyte, 10) + "M" }

func (m *machine) Resize(ctx context.Context, cpus int, memory int64) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	switch {
	case cpus < m.config.CPUs || cpus > max(m.config.CPUs, m.config.MaxCPUs):
		return fmt.Errorf("resize the machine: it cannot have %d processors", cpus)
	case memory < m.config.Memory || memory > max(m.config.Memory, m.config.MaxMemory) || (memory-m.config.Memory)%memoryBlock != 0:
		return fmt.Errorf("resize the machine: it cannot have %d bytes of memory", memory)
	}
	select {
	case m.resizing <- struct{}{}:
		defer func() { <-m.resizing }()
	case <-ctx.Done():
		return fmt.Errorf("resize the machine: %w", context.Cause(ctx))
	}
	var err error
	if m.config.MaxMemory > m.config.Memory {
		err = m.qmp.execute(ctx, "qom-set", map[string]any{
			"path": "/machine/peripheral/" + moreMemory, "property": "requested-size", "value": memory - m.config.Memory,
		}, nil)
	}
	if err = errors.Join(err, m.addCPUs(ctx, cpus)); err != nil {
		return fmt.Errorf("resize the machine: %w", err)
	}
	return nil
}

// slot is where a processor is, or can be plugged in.
type slot struct {
	Type  string         `json:"type"`
	Props map[string]any `json:"props"`
	Path  string         `json:"qom-path"` // "": the slot is empty
}

// addCPUs plugs processors in until the machine has as many.
func (m *machine) addCPUs(ctx context.Context, want int) error {
	var slots []slot
	if err := m.qmp.execute(ctx, "query-hotpluggable-cpus", nil, &slots); err != nil {
		return err
	}
	have := 0
	for _, s := range slots {
		if s.Path != "" {
			have++
		}
	}
	for _, s := range slices.Backward(slots) { // QEMU lists the last slot first
		if s.Path != "" || have >= want {
			continue
		}
		properties := map[string]any{"driver": s.Type, "id": "cpu" + strconv.Itoa(have)}
		maps.Copy(properties, s.Props)
		if err := m.qmp.execute(ctx, "device_add", properties, nil); err != nil {
			return err
		}
		have++
	}
	return nil
}

func (m *machine) Size(ctx context.Context) (cpus int, memory int64, err error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	var threads []struct{}
	if err := m.qmp.execute(ctx, "query-cpus-fast", nil, &threads); err != nil {
		return 0, 0, fmt.Errorf("ask for the size of the machine: %w", err)
	}
	var more int64
	if m.config.MaxMemory > m.config.Memory {
		arguments := map[string]any{"path": "/machine/peripheral/" + moreMemory, "property": "size"}
		if err := m.qmp.execute(ctx, "qom-get", arguments, &more); err != nil {
			return 0, 0, fmt.Errorf("ask for the size of the machine: %w", err)
		}
	}
	return len(threads), m.config.Memory + more, nil
}
