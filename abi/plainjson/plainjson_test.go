package plainjson_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
	"github.com/rkt/containerd-shim-rkt-v1/abi/plainjson"
)

type word string

type embedded struct {
	A int
}

// five is omitted by omitzero if it is 5.
type five int

func (f five) IsZero() bool { return f == 5 }

// fives has a field with a method that says what is omitted.
type fives struct {
	Five five `json:"five,omitzero"`
}

// everything has a field of each kind that a document may have.
type everything struct {
	Text     string                     `json:"text"`
	Word     word                       `json:"word,omitempty"`
	Small    int8                       `json:"small"`
	Big      uint64                     `json:"big,omitempty"`
	Float    float32                    `json:"float,omitempty"`
	Flag     bool                       `json:"flag,omitempty"`
	Pointer  **int                      `json:"pointer,omitempty"`
	List     []string                   `json:"list,omitempty"`
	Pair     [2]int                     `json:"pair"`
	Map      map[word]embedded          `json:"map,omitempty"`
	Numbers  map[int]string             `json:"numbers,omitempty"`
	Any      any                        `json:"any,omitempty"`
	Raw      json.RawMessage            `json:"raw,omitempty"`
	Document abi.RawJSON                `json:"document"`
	Bytes    []byte                     `json:"bytes,omitempty"`
	Time     time.Time                  `json:"time"`
	When     *time.Time                 `json:"when,omitempty"`
	Zero     time.Time                  `json:"zero,omitzero"`
	Number   json.Number                `json:"number,omitempty"`
	Quoted   int                        `json:"quoted,string,omitempty"`
	Untagged int                        // has its own name
	Inner    *struct{ embedded }        `json:"inner,omitempty"`
	Deep     map[string][]*plain        `json:"deep,omitempty"`
	Skipped  int                        `json:"-"`
	Raws     map[string]json.RawMessage `json:"raws,omitempty"`
}

// plain has no field that makes a struct rare.
type plain struct {
	Text   string                     `json:"text"`
	Word   word                       `json:"word,omitempty"`
	Small  int8                       `json:"small"`
	Big    uint64                     `json:"big,omitempty"`
	Float  float64                    `json:"float,omitempty"`
	Flag   *bool                      `json:"flag,omitempty"`
	List   []string                   `json:"list"`
	Pair   [2]int                     `json:"pair,omitempty"`
	Map    map[word]*plain            `json:"map,omitempty"`
	Any    any                        `json:"any,omitempty"`
	Raw    abi.RawJSON                `json:"raw,omitempty"`
	Raws   map[string]json.RawMessage `json:"raws,omitempty"`
	Time   time.Time                  `json:"time"`
	When   *time.Time                 `json:"when,omitempty"`
	Self   []plain                    `json:"self,omitempty"`
	Since  time.Time                  `json:"since,omitzero"`
	Two    [2]int                     `json:"two,omitzero"`
	Empty  []string                   `json:"empty,omitzero"`
	hidden int
}

var texts = []string{
	`{"five":5}`, `{"five":4}`, `{"since":"2026-01-02T03:04:05Z","two":[1],"empty":[]}`, `{"since":"0001-01-01T00:00:00Z","two":[0,0]}`,
	`null`, `7`, `"x"`, `[]`, `{}`, ``, `{`, `{"a":1}x`,
	`{"text":"a\u0062\ud800","TEXT":"c"}`, `{"tExT":"<&>"}`, `{"small":128}`, `{"small":-128,"big":18446744073709551615}`,
	`{"small":1.0}`, `{"small":1e2}`, `{"small":-0}`, `{"big":-1}`, `{"float":1e39}`, `{"float":1e400}`, `{"float":1.5}`, `{"flag":"true"}`, `{"flag":true}`,
	`{"pointer":5}`, `{"pointer":null}`, `{"list":["a",null,"b"]}`, `{"list":[]}`, `{"list":null}`, `{"list":{}}`, `{"list":["a"],"list":["b","c"]}`,
	`{"pair":[1,2,3]}`, `{"pair":[1]}`, `{"map":{"a":{"text":"b"},"a":{"small":1}}}`, `{"map":{"a":null}}`, `{"map":{"\u0061":{}}}`,
	`{"any":{"a":[1,"b",null,true]}}`, `{"any":null}`, `{"raw": { "a" : 1 } }`, `{"raw":null}`, `{"raws":{"a":{},"b": [ 1 ],"c":null}}`,
	`{"time":"2024-02-03T04:05:06.7Z","when":null}`, `{"when":"2024-02-03T04:05:06Z"}`, `{"when":7}`,
	`{"self":[{"self":[{"text":"x"}]},{"unknown":{"a":["]}\""]},"small":3}]}`, `{"unknown":[[{"a":"}"}],1e400]}`, "{\"text\":\"\xff\xfe\u2028\"}", `{"hidden":1}`,
	`{"ociVersion":"1.2.0","process":{"user":{"uid":1},"args":["sh"],"capabilities":{}},"root":{"path":"r"},"linux":{"resources":{"devices":[{"allow":false,"major":null,"access":"rwm"}],"blockIO":{"weightDevice":[{"major":8,"minor":0,"weight":5}]}},"namespaces":[{"type":"pid"}]}}`,
	`{"version":7,"entrypoint":"app/add","spec":{ "a":1 },"cgroup":{"version":1,"dirs":["/a"]}}`,
}

// same compares package plainjson with encoding/json.
func same[T any](t *testing.T, text []byte) {
	t.Helper()
	var got, want T
	err, wantErr := plainjson.Decode(text, &got), json.Unmarshal(text, &want)
	if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("%T: %q is read with %v, want %v", got, text, err, wantErr)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%T: %q is read as\n%+v, want\n%+v", got, text, got, want)
	}
	for _, v := range []any{got, &got, []T{got}, map[string]T{"<": got}, map[string]any{"a": &got}} {
		written, err := plainjson.Encode(v)
		wanted, wantErr := json.Marshal(v)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || !bytes.Equal(written, wanted) {
			t.Fatalf("%T: %q is written as\n%s (%v), want\n%s (%v)", v, text, written, err, wanted, wantErr)
		}
	}
}

func sameOfAll(t *testing.T, text []byte) {
	same[everything](t, text)
	same[plain](t, text)
	same[specs.Spec](t, text)
	same[specs.Process](t, text)
	same[specs.LinuxResources](t, text)
	same[abi.Request](t, text)
	same[fives](t, text)
	same[map[string]plain](t, text)
	same[[]*plain](t, text)
	same[any](t, text)
	same[string](t, text)
	same[*int](t, text)
}

func TestDocumentsAreReadAndWrittenAsByEncodingJSON(t *testing.T) {
	for _, text := range texts {
		sameOfAll(t, []byte(text))
	}
	features, err := filepath.Glob("../../stage1/images/*/*.json")
	if err != nil || len(features) == 0 {
		t.Fatalf("%q: %v", features, err)
	}
	for _, file := range features {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		same[any](t, text)
		same[json.RawMessage](t, text)
	}
}

func FuzzDocumentsAreReadAndWrittenAsByEncodingJSON(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Fuzz(sameOfAll)
}

// Values are written as by encoding/json, and what is written is read as by encoding/json. No text
// has to be read for these values: they may be such as no document has.
func FuzzValuesAreWrittenAsByEncodingJSON(f *testing.F) {
	f.Add([]byte("\x03abc\xff\x01\x02<\xe2\x80\xa8\x00\x01\x02"))
	f.Add(bytes.Repeat([]byte{1}, 300))
	f.Add(bytes.Repeat([]byte{2, '&', 0xff, 0x7f, 0xf0}, 60))
	f.Fuzz(func(t *testing.T, text []byte) {
		sameValue[everything](t, text)
		sameValue[plain](t, text)
		sameValue[fives](t, text)
		sameValue[specs.Spec](t, text)
		sameValue[abi.Request](t, text)
	})
}

func sameValue[T any](t *testing.T, text []byte) {
	t.Helper()
	var v T
	s := source(text)
	s.fill(reflect.ValueOf(&v).Elem(), 6)
	for _, v := range []any{v, &v} {
		written, err := plainjson.Encode(v)
		wanted, wantErr := json.Marshal(v)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || !bytes.Equal(written, wanted) {
			t.Fatalf("%T: %+v is written as\n%s (%v), want\n%s (%v)", v, v, written, err, wanted, wantErr)
		}
		if err == nil {
			same[T](t, written)
		}
	}
}

// source is a text that decides the values of a document.
type source []byte

// number cuts off n bytes, and returns 0 after the end.
func (s *source) number(n int) (v uint64) {
	for range n {
		v <<= 8
		if len(*s) > 0 {
			v |= uint64((*s)[0])
			*s = (*s)[1:]
		}
	}
	return v
}

func (s *source) bytes() []byte {
	n := min(int(s.number(1)%32), len(*s))
	defer func() { *s = (*s)[n:] }()
	return bytes.Clone((*s)[:n])
}

// fill sets a value and, up to a depth, the values below it.
func (s *source) fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case time.Time: // also of years that JSON cannot have
		v.Set(reflect.ValueOf(time.Unix(int64(s.number(8))>>(s.number(1)%64), int64(s.number(4))).UTC()))
		return
	case json.RawMessage, abi.RawJSON, json.Number:
		raws := []string{"", "null", " { \"a\" : 1 } ", "[1,", "\"<\"", "1e5", "-", "\"\xff\""}
		v.Set(reflect.ValueOf(raws[s.number(1)%uint64(len(raws))]).Convert(v.Type()))
		return
	}
	if v.Kind() == reflect.Interface {
		if v.NumMethod() == 0 {
			v.Set([]reflect.Value{reflect.Zero(v.Type()), reflect.ValueOf(string(s.bytes())), reflect.ValueOf(math.Float64frombits(s.number(8))), reflect.ValueOf(func() {})}[s.number(1)%4])
		}
		return
	}
	more := depth > 0
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				s.fill(v.Field(i), depth-1)
			}
		}
	case reflect.Pointer:
		if more && s.number(1)%2 == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			s.fill(v.Elem(), depth-1)
		}
	case reflect.Slice:
		if n := int(s.number(1) % 4); more && n > 0 { // 0 is nil
			v.Set(reflect.MakeSlice(v.Type(), n-1, n-1))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			s.fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		if n := s.number(1) % 4; more && n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n - 1 {
				key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				s.fill(key, depth-1)
				s.fill(value, depth-1)
				v.SetMapIndex(key, value)
			}
		}
	case reflect.String:
		v.SetString(string(s.bytes()))
	case reflect.Bool:
		v.SetBool(s.number(1)%2 == 1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(math.Float64frombits(s.number(8)))
	default: // whole numbers
		v.Set(reflect.ValueOf(s.number(8) >> (s.number(1) % 64)).Convert(v.Type()))
	}
}

// encoding/json reads values in values down to a depth of 10000.
func TestTheDepthOfADocumentIsLimitedAsByEncodingJSON(t *testing.T) {
	for _, depth := range []int{9999, 10000, 10001} {
		sameOfAll(t, []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)))
		sameOfAll(t, []byte(strings.Repeat(`{"any":`, depth)+"1"+strings.Repeat("}", depth)))
		sameOfAll(t, []byte(strings.Repeat(`{"unknown":`, depth)+"1"+strings.Repeat("}", depth)))
		sameOfAll(t, []byte(strings.Repeat(`{"self":[`, depth/2)+"{}"+strings.Repeat("]}", depth/2)))
	}
}

func TestAValueThatWasThereIsCompleted(t *testing.T) {
	old := func() *plain { return &plain{Text: "old", Map: map[word]*plain{"a": {Big: 2}}, Self: make([]plain, 2)} }
	text := []byte(`{"small":1,"map":{"b":null},"self":[]}`)
	got, want := old(), old()
	if err := errors.Join(plainjson.Decode(text, got), json.Unmarshal(text, want)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v (%v)", got, want, err)
	}
	if err := plainjson.Decode([]byte(`{}`), *got); err == nil {
		t.Error("a document was read into a value that is no pointer")
	}
}

func TestWhatJSONCannotSayIsAnError(t *testing.T) {
	for _, v := range []any{make(chan int), plain{Any: func() {}}, plain{Raw: abi.RawJSON("{")}, plain{Raws: map[string]json.RawMessage{"a": json.RawMessage("x")}}} {
		_, want := json.Marshal(v)
		if text, err := plainjson.Encode(v); err == nil || err.Error() != want.Error() {
			t.Errorf("%T: %s, %v; want %v", v, text, err, want)
		}
	}
}

// The tables are all that this package is there to avoid.
func TestNoTablesOfTypesAreKept(t *testing.T) {
	type unique struct { // no other test has made encoding/json keep tables of it
		Spec specs.Spec `json:"spec"`
	}
	read := func() {
		var u unique
		if err := plainjson.Decode([]byte(`{"spec":{"process":{"args":["a"]},"linux":{"resources":{"cpu":{"shares":2}}}}}`), &u); err != nil {
			t.Fatal(err)
		}
		if _, err := plainjson.Encode(u); err != nil {
			t.Fatal(err)
		}
	}
	kept := func(f func()) int64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.GC() // pools are emptied by the second collection
		runtime.ReadMemStats(&before)
		f()
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&after)
		return int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	if lean := kept(read); lean > 16<<10 {
		t.Errorf("reading and writing a spec leaves %d bytes in memory", lean)
	}
}
