package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSavedMachinesOfEarlierBootsAndTheOldestAreRemoved(t *testing.T) {
	dir := t.TempDir()
	digest := strings.Repeat("0", 31)
	var want []string
	for i := range 6 {
		name := fmt.Sprintf("aaaaaaaa-%s%d", digest, i)
		mkdir(t, dir, name)
		at := time.Now().Add(time.Duration(i-10) * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
		if i >= 3 {
			want = append(want, name)
		}
	}
	mkdir(t, dir, "bbbbbbbb-"+digest+"0")
	for _, others := range []string{"new", "aaaaaaaa-of-another", "cache"} {
		mkdir(t, dir, others)
		want = append(want, others)
	}
	if err := collect(dir, "aaaaaaaa-"+digest+"f"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("left are %q, want %q", got, want)
	}
}

func mkdir(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryIsCopiedWithoutItsZeros(t *testing.T) {
	dir := t.TempDir()
	open := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	from, to := open("from"), open("to")
	const size = 64 << 20
	for at, text := range map[int64]string{0: "begin", 8192 + 4090: "over the end of a page", 32<<20 + 1: "middle", size - 3: "end"} {
		if _, err := from.WriteAt([]byte(text), at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := from.WriteAt(make([]byte, 8<<20), 40<<20); err != nil { // zeros that take room
		t.Fatal(err)
	}
	if err := copyMemory(to, from); err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(from.Name())
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(to.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(a, b) {
		t.Error("the copy has another content")
	}
	info, err := to.Stat()
	if err != nil {
		t.Fatal(err)
	}
	if room := info.Sys().(*syscall.Stat_t).Blocks * 512; info.Size() != size || room > 1<<20 {
		t.Errorf("the copy has %d bytes, and takes %d", info.Size(), room)
	}
}
