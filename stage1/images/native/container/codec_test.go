package container

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// fill gives every field below v a different value, so that a test notices a
// field that the codec forgets or confuses with another.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), n)
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, n)
		fill(value, n)
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(string(rune('a' + *n)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	case reflect.Int, reflect.Int32:
		v.SetInt(int64(-*n))
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		v.SetUint(uint64(*n))
	}
}

func filled() *config {
	c, n := &config{}, 0
	fill(reflect.ValueOf(c).Elem(), &n)
	for i := range c.Mounts { // arguments that only Prepare uses
		c.Mounts[i].Recursive.Propagation, c.Mounts[i].Recursive.Userns_fd = 0, 0
	}
	return c
}

func TestThePlanArrivesWhole(t *testing.T) {
	for _, want := range []*config{filled(), {}, {Process: process{Umask: 0o22}, Personality: new(uint32)}} {
		b, err := encodeConfig(want)
		must(t, err)
		got, err := decodeConfig(b)
		must(t, err)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	}
}

func TestATruncatedPlanIsAnError(t *testing.T) {
	b, err := encodeConfig(&config{Keyring: "k", Masked: []string{"/a", "/b"}, ConsoleSize: &specs.Box{Height: 1}})
	must(t, err)
	for n := range b {
		if _, err := decodeConfig(b[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken for a plan", n, len(b))
		}
	}
	if _, err := decodeConfig(append(b, 0)); err == nil {
		t.Error("more than a plan was taken for one")
	}
}

func TestANumberThatItsFieldHasNoRoomForIsAnError(t *testing.T) {
	w := &codec{}
	for _, n := range []uint64{1 << 32, ^uint64(0)} {
		number(w, &n)
	}
	b := w.b
	for _, read := range []func(*codec){
		func(c *codec) { number(c, new(uint32)) },
		func(c *codec) { number(c, new(int32)) },
		func(c *codec) { number(c, new(uint16)) },
	} {
		r := &codec{b: b, reading: true}
		if read(r); r.err == nil {
			t.Error("1<<32 was cut off")
		}
	}
	r := &codec{b: b, reading: true}
	var n uint64
	var minus int
	if number(r, &n); r.err != nil || n != 1<<32 {
		t.Errorf("%d, %v", n, r.err)
	}
	if number(r, &minus); r.err != nil || minus != -1 {
		t.Errorf("%d, %v", minus, r.err)
	}
}

// If a plan can be decoded, it is the same after it was encoded and decoded again, and
// it needs no more memory than the number of its bytes explains.
func FuzzAPlanIsRefusedOrComesBack(f *testing.F) {
	for _, c := range []*config{{}, filled()} {
		b, err := encodeConfig(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		c, err := decodeConfig(b)
		runtime.ReadMemStats(&after)
		// The largest item of a list is a mount, which may have one byte for each of its fields.
		if most := 1<<20 + uint64(len(b))*uint64(unsafe.Sizeof(mount{})); after.TotalAlloc-before.TotalAlloc > most {
			t.Errorf("%d bytes took %d", len(b), after.TotalAlloc-before.TotalAlloc)
		}
		if err != nil {
			return
		}
		first, err := encodeConfig(c)
		must(t, err)
		again, err := decodeConfig(first)
		must(t, err)
		second, err := encodeConfig(again)
		must(t, err)
		if !bytes.Equal(first, second) {
			t.Errorf("%q became %q", first, second)
		}
	})
}
