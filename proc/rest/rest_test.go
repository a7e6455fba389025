package rest

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const (
	fresh  = 1000
	growth = 100
)

// process is a Memory whose process grows with its work, and the times of its releases.
type process struct {
	*Memory
	mu       sync.Mutex
	size     int
	unknown  bool // the kernel does not tell the size
	releases []time.Duration
}

func newProcess() *process {
	p, start := &process{Memory: NewMemory(fresh, growth), size: fresh}, time.Now()
	p.survey = func() (survey, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.unknown {
			return survey{}, io.EOF
		}
		return survey{anonymous: p.size}, nil
	}
	p.release = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.size = fresh / 2
		p.releases = append(p.releases, time.Since(start))
	}
	return p
}

func (p *process) work(bytes int) {
	p.grow(bytes)
	p.Touch()
}

func (p *process) grow(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size += bytes
}

// released returns the times of the releases.
func (p *process) released() []time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.releases)
}

// requirements.md#N4
func TestMemoryIsGivenBackAfterWorkAndNoOftenerThanEvery30Seconds(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcess()
			p.unknown = unknown
			p.work(2 * growth)
			time.Sleep(time.Second)
			p.work(2 * growth)
			time.Sleep(4500 * time.Millisecond) // at rest
			for range 100 {
				p.work(growth)
				time.Sleep(700 * time.Millisecond) // so that no look is due at the time of some work
			}
			time.Sleep(time.Hour) // nothing is left to give back
			want := []time.Duration{4 * time.Second, 35500 * time.Millisecond, 65600 * time.Millisecond, 95600 * time.Millisecond}
			if got := p.released(); !slices.Equal(got, want) {
				t.Errorf("given back at %v, want %v", got, want)
			}
			p.work(10 * growth)
			p.Stop()
			p.work(10 * growth)
			time.Sleep(time.Hour)
			if len(p.released()) > len(want) {
				t.Error("given back after the end")
			}
		})
	}
}

// The timer may expire while Touch sets it again.
func TestATimerThatHasExpiredTooEarlyIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		p.work(2 * growth)
		time.Sleep(time.Second)
		p.look()
		if got := p.released(); len(got) > 0 {
			t.Errorf("given back at %v, before the process was at rest", got)
		}
		time.Sleep(time.Hour)
		p.grow(2 * growth)
		p.look()
		if got := p.released(); !slices.Equal(got, []time.Duration{3 * time.Second}) { // by the timer
			t.Errorf("given back at %v", got)
		}
	})
}

func TestALittleGrowthIsLeftUntilThereIsMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProcess()
		for range 4 {
			time.Sleep(time.Hour)
			p.work(growth / 4)
		}
		time.Sleep(time.Hour)
		if len(p.released()) > 0 {
			t.Errorf("given back at %v, without the growth that is worth it", p.released())
		}
		p.work(1)
		time.Sleep(time.Hour)
		if len(p.released()) != 1 {
			t.Errorf("given back %d times, want 1", len(p.released()))
		}
		p.work(growth) // the process has fresh/2 by now
		time.Sleep(time.Hour)
		p.work(1)
		time.Sleep(time.Hour)
		if len(p.released()) != 2 {
			t.Errorf("given back %d times, want 2: the size was read after the first release", len(p.released()))
		}
	})
}

func TestTheKernelTellsTheSizeOfThisProcess(t *testing.T) {
	more := make([]byte, 64<<20)
	for i := range more {
		more[i] = 1
	}
	if s, err := takeSurvey(); err != nil || s.anonymous < len(more) || len(s.program) < 2 {
		t.Errorf("%+v (%v), with %d bytes in use", s, err, len(more))
	}
	runtime.KeepAlive(more)
}

func TestOnlyUnchangedPagesOfFilesAreOfTheProgram(t *testing.T) {
	text := "00400000-00410000 r--p 00000000 fe:00 1234   /usr/bin/a program (deleted)\nSize: 64 kB\nRss:  8 kB\nAnonymous:          0 kB\nVmFlags: rd mr mw me sd \n" +
		"00410000-00420000 r-xp 00010000 fe:00 1234   /usr/bin/a\nAnonymous:          4 kB\n" +
		"00420000-00430000 rw-p 00020000 fe:00 1234   /usr/bin/a\nAnonymous:         12 kB\n" +
		"00430000-00440000 r--s 00020000 fe:00 1234   /shared\nAnonymous:         0 kB\n" +
		"00440000-00450000 r-xp 00030000 fe:00 1234   /usr/bin/a\nAnonymous:          0 kB\n" +
		"c000000000-c000400000 rw-p 00000000 00:00 0 \nAnonymous:       1234 kB\n" +
		"7ffd9f1fe000-7ffd9f200000 r-xp 00000000 00:00 0                          [vdso]\nAnonymous:          0 kB\n"
	for _, chunk := range []int{1, 100, 8 << 10} {
		got, err := read(chunks(text, chunk))
		want := []pages{{0x400000, 0x410000}, {0x440000, 0x450000}}
		if err != nil || got.anonymous != (4+12+1234)<<10 || !slices.Equal(got.program, want) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for _, text := range []string{
		"x\n", "00400000\n", "00400000-x r--p 0 fe:00 1234 /a\n", "00400000-00410000 r--p 00000000 fe:00 1234   /a\nAnonymous: x kB\n",
		"00400000-00410000 r--p 0 fe:00 1 /a", strings.Repeat("x", 8<<10) + "\n",
	} {
		if got, err := read(chunks(text, 100)); err == nil {
			t.Errorf("%.100q: %+v", text, got)
		}
	}
}

// chunks returns a read that returns n bytes at a time.
func chunks(text string, n int) func([]byte) (int, error) {
	r := strings.NewReader(text)
	return func(b []byte) (int, error) { return r.Read(b[:min(n, len(b))]) }
}

func TestTheProgramIsUnmappedAndRunsOn(t *testing.T) {
	before := resident(t)
	s, err := takeSurvey()
	if err != nil {
		t.Fatal(err)
	}
	s.unmap()
	if after := resident(t); after >= before { // which has mapped some of it again
		t.Errorf("%d bytes of files are mapped, after %d", after, before)
	}
	runtime.GC() // reads tables of the program
	if sorted := slices.Sorted(slices.Values([]int{2, 1})); sorted[0] != 1 {
		t.Error(sorted)
	}
}

// resident returns how many bytes of files this process has mapped.
func resident(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) int {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":")
		n, err := strconv.Atoi(strings.Fields(rest)[0])
		if err != nil {
			t.Fatal(err)
		}
		return n << 10
	}
	return value("Rss") - value("Anonymous")
}
