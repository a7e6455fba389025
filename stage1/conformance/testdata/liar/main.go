// Command liar makes a stage1 that ignores fields of config.json. It prints a request after
// a change of the spec and the process in it: without JSON it removes the field, and with
// JSON it replaces the field's value.
//
//	liar REQUEST POINTER [JSON]
//
// In the pointer * stands for any index or key.
package main

import (
	"bytes"
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
)

func main() {
	log.SetFlags(0)
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	request := map[string]any{}
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&request); err != nil {
		log.Fatal(err)
	}
	var instead any
	if len(os.Args) > 3 {
		if err := json.Unmarshal([]byte(os.Args[3]), &instead); err != nil {
			log.Fatal(err)
		}
	}
	words := strings.Split(os.Args[2], "/")[1:]
	change(request["spec"], words, instead)
	change(request, words, instead) // the process of an exec is at the same place
	if err := json.NewEncoder(os.Stdout).Encode(request); err != nil {
		log.Fatal(err)
	}
}

// change replaces the value to which words lead, or drops it if instead is nil.
func change(v any, words []string, instead any) {
	each := func(name string, member any, set func(any), drop func()) {
		switch {
		case words[0] != "*" && words[0] != name:
		case len(words) > 1:
			change(member, words[1:], instead)
		case instead == nil:
			drop()
		default:
			set(instead)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			each(name, member, func(to any) { v[name] = to }, func() { delete(v, name) })
		}
	case []any:
		for i, member := range v {
			each(strconv.Itoa(i), member, func(to any) { v[i] = to }, func() { v[i] = nil })
		}
	}
}
