package spec

import "testing"

func TestAPointerLeadsToAFieldOrSaysWhatWasMeant(t *testing.T) {
	for pointer, meant := range map[string]string{
		"/process/args": "", "/process/args/0": "", "/mounts/*/options": "", "/linux/sysctl/net.ipv4.ip_forward": "",
		"/linux/resources/blockIO/weightDevice/*/major": "", "/vm/kernel/path": "",
		"/proces": "/process", "/process/arg": "/process/args", "/linux/resources/blockIO/weightDevice/0/minr": "/linux/resources/blockIO/weightDevice/0/minor",
	} {
		miss := Follow(pointer)
		if (miss != nil) != (meant != "") || miss != nil && miss.Meant != meant {
			t.Errorf("%s: %+v, want %q", pointer, miss, meant)
		}
	}
	for _, pointer := range []string{"/process/args/first", "/process/cwd/x", "/nothing/like/it"} {
		if miss := Follow(pointer); miss == nil || miss.Why == "" || miss.Meant != "" {
			t.Errorf("%s: %+v", pointer, miss)
		}
	}
}
