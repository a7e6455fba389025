package stage1

import (
	"bytes"
	"strings"
	"testing"
)

func TestReadyLines(t *testing.T) {
	for text, want := range map[string]int{
		`{"pid": 4711}`: 4711, `{"pid":1,"starttime":123456}`: 1, ` {"pid" : 2 , "new": {"x": []}} `: 2,
		"": 0, "{}": 0, "null": 0, "4711": 0, `"4711"`: 0, `{"pid": "1"}`: 0, `{"pid": -1}`: 0, `{"pid": 1.5}`: 0,
		`{"pid": 1} {"pid": 2}`: 0, `{"pid": 1, "starttime": -1}`: 0, `{"pid": 99999999999999999999}`: 0, "{": 0,
	} {
		r, err := decodeReady([]byte(text + "\n"))
		if r.PID != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %+v, %v", text, r, err)
		}
	}
}

func FuzzReadyLine(f *testing.F) {
	f.Add([]byte("{\"pid\": 4711, \"starttime\": 123456}\n"))
	f.Add([]byte("garbage"))
	f.Add([]byte("{}\nmore"))
	f.Add(bytes.Repeat([]byte("x"), 2*maxReady))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 60000 { // what a pipe holds
			return
		}
		var d descriptors
		r, err := d.pipe(0)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		w := d.table[0]
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		l := readLine(r)
		l.stop() // whoever holds the write end is not waited for
		d.close()
		want, _, found := strings.Cut(string(text), "\n")
		if found {
			want += "\n"
		}
		want = want[:min(len(want), maxReady)]
		if string(l.text) != want {
			t.Errorf("%q, want %q", l.text, want)
		}
		ready, err := decodeReady(l.text)
		if (err == nil) != (ready.PID > 0) || err != nil && len(err.Error()) > 600 {
			t.Errorf("%+v, %v", ready, err)
		}
	})
}

func TestThePipesOfACallAreClosedByItsStart(t *testing.T) {
	before := openFDs(t)
	var d descriptors
	r, err := d.pipe(3)
	if err != nil {
		t.Fatal(err)
	}
	if files := d.files(); len(files) != 4 || files[0] != nil || files[3] == nil {
		t.Errorf("table %v", files)
	}
	d.close()
	if n, err := r.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("the write end is open: %d, %v", n, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
