package main

import (
	"bufio"
	"strings"
	"testing"
)

func TestTableOfMachinesNamesTheReferenceOfEachRow(t *testing.T) {
	r := results{
		opReady:         {virtual: {1300, 1200, 1250}, reference: {1000, 1000, 1000}},
		opLastEnd:       {virtual: {90}}, // without a reference
		opExec:          {virtual: {40, 40}, reference: {10, 10}},
		opMachineMemory: {virtual: {39}, reference: {36}}, // an absolute budget
		opVolumeRead:    {virtual: {400, 100, 200}, reference: {1000, 1000, 1000}},
		opSend:          {reference: {1}}, // no machine was measured
	}
	want := strings.ReplaceAll(`
|                                       | n | unit |   kvm (p90) | reference (p90) | ratio |     reference | budget          |
|---------------------------------------|--:|-----:|------------:|----------------:|------:|--------------:|-----------------|
| pod ready                             | 3 |   ms | 1250 (1300) |     1000 (1000) |  1.25 |     bare boot | ≤ 1.3 ×, met    |
| Kill + Delete of a pod's last container | 1 |   ms |        90.0 |               – |     – |               |                 |
| Exec + Start + Wait of "true"         | 2 |   ms | 40.0 (40.0) |     10.0 (10.0) |  4.00 | fork and exec | ≤ 3 ×, not met  |
| QEMU, virtiofsd and proxies           | 1 |   MB |        39.0 |            36.0 |  1.08 |     bare boot | ≤ 40 MB, met    |
| reading a volume (virtiofs)           | 3 | MB/s |   200 (100) |     1000 (1000) |  0.20 |        native |                 |
`, `"`, "`")
	if got := "\n" + r.machineTable(); squeeze(got) != squeeze(want) {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

// squeeze removes the padding of a table.
func squeeze(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ' ' }), " ")
	for strings.Contains(text, "--") {
		text = strings.ReplaceAll(text, "--", "-")
	}
	return text
}

func TestEveryOperationOfMachinesHasADescription(t *testing.T) {
	for _, row := range machineRows() {
		if d := row.op.describe(); d.name == "" || d.unit == "" {
			t.Errorf("operation %d is %+v", row.op, d)
		}
	}
}

func TestResidentMemoryIsCountedByWhatItIs(t *testing.T) {
	const smaps = `55d000000000-55d000001000 r-xp 00000000 00:1f 1 /usr/bin/qemu-system-x86_64
Rss:                3000 kB
Pss:                1000 kB
Anonymous:             0 kB
7f0000000000-7f0040000000 rw-s 00000000 00:01 2 /memfd:memory-backend-memfd (deleted)
Rss:               90000 kB
Pss:               45000 kB
Anonymous:             0 kB
7f0050000000-7f0054000000 rwxp 00000000 00:00 0 
Rss:               50000 kB
Pss:               50000 kB
Anonymous:         50000 kB
7f0060000000-7f0064000000 r--p 00000000 00:30 9 /
Rss:               20000 kB
Pss:                2000 kB
Anonymous:             0 kB
7f0070000000-7f0071000000 rw-p 00000000 00:00 0 [heap]
Rss:                2000 kB
Pss:                2000 kB
Anonymous:          2000 kB
VmFlags: rd wr mr
`
	got := parseResident(bufio.NewScanner(strings.NewReader(smaps)))
	mb := func(kb float64) float64 { return kb * 1024 / 1e6 }
	if want := (resident{guest: mb(90000), buffer: mb(50000), kernel: mb(20000), own: mb(2000), files: mb(1000)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
