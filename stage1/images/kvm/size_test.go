package main

import (
	"strings"
	"testing"

	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/machine"
	"github.com/rkt/containerd-shim-rkt-v1/stage1/images/kvm/supervisor"
)

const annotationPrefix = "io.containerd.rkt.v1/kvm."

func TestTheSizesOfAMachineComeFromSettingsAnnotationsAndLimits(t *testing.T) {
	host := supervisor.Size{CPUs: 4, Memory: 8 * gibibyte}
	for _, c := range []struct {
		name             string
		settings         settings
		annotations      map[string]string
		limits           string
		base, boot, most supervisor.Size
	}{
		{name: "the defaults", settings: defaults, base: supervisor.Size{CPUs: 1, Memory: gibibyte}, boot: supervisor.Size{CPUs: 1, Memory: gibibyte}, most: host},
		{
			name: "limits are added", settings: defaults, limits: `{"memory":{"limit":104857601},"cpu":{"quota":150000,"period":100000}}`,
			base: supervisor.Size{CPUs: 1, Memory: gibibyte}, boot: supervisor.Size{CPUs: 3, Memory: gibibyte + 102*mebibyte}, most: host,
		},
		{
			name: "annotations replace the base", settings: defaults, limits: `{"cpu":{"shares":2048}}`,
			annotations: map[string]string{annotationPrefix + "cpus": "2", annotationPrefix + "memory": "256Mi"},
			base:        supervisor.Size{CPUs: 2, Memory: 256 * mebibyte}, boot: supervisor.Size{CPUs: 2, Memory: 256 * mebibyte}, most: host,
		},
		{
			name: "limits beyond the bounds", settings: settings{CPUs: 1, Memory: gibibyte, MaxCPUs: 2, MaxMemory: 2*gibibyte + mebibyte},
			limits: `{"memory":{"limit":9223372036854771712},"cpu":{"quota":9223372036854775807,"period":1}}`,
			base:   supervisor.Size{CPUs: 1, Memory: gibibyte}, boot: supervisor.Size{CPUs: 2, Memory: 2 * gibibyte}, most: supervisor.Size{CPUs: 2, Memory: 2 * gibibyte},
		},
		{
			name: "no limits", settings: defaults, limits: `{"memory":{"limit":-1},"cpu":{"quota":-1,"period":100000}}`,
			base: supervisor.Size{CPUs: 1, Memory: gibibyte}, boot: supervisor.Size{CPUs: 1, Memory: gibibyte}, most: host,
		},
		{
			name: "a small host", settings: settings{CPUs: 5, Memory: 9 * gibibyte},
			base: supervisor.Size{CPUs: 5, Memory: 9 * gibibyte}, boot: supervisor.Size{CPUs: 5, Memory: 9 * gibibyte}, most: supervisor.Size{CPUs: 5, Memory: 9 * gibibyte},
		},
	} {
		got, err := c.settings.sizes(host, c.annotations, []byte(c.limits))
		if want := (supervisor.Sizes{Base: c.base, Boot: c.boot, Max: c.most}); err != nil || got != want {
			t.Errorf("%s: %+v, want %+v: %v", c.name, got, want, err)
		}
	}
}

func TestTheTypeOfAMachineIsThatOfItsPodOrOfTheSettings(t *testing.T) {
	for _, c := range []struct {
		settings, annotation, want string
	}{
		{"q35", "", "q35"},
		{"microvm", "", "microvm"},
		{"q35", "microvm", "microvm"},
		{"microvm", "q35", "q35"},
		{"pc", "", `settings of machines: type: "pc" is neither q35 nor microvm`},
		{"q35", "pc", "annotation " + annotationPrefix + `type: "pc" is neither q35 nor microvm`},
		{"", "", `settings of machines: type: "" is neither`},
	} {
		s, annotations := settings{Type: machine.Type(c.settings)}, map[string]string{}
		if c.annotation != "" {
			annotations[annotationPrefix+"type"] = c.annotation
		}
		got, err := s.machineType(annotations)
		if err == nil && string(got) != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}

func TestASizeThatIsImpossibleIsRefusedWithItsReason(t *testing.T) {
	host := supervisor.Size{CPUs: 4, Memory: 8 * gibibyte}
	for _, s := range []settings{
		{CPUs: 0, Memory: gibibyte},
		{CPUs: 3, MaxCPUs: 2, Memory: gibibyte},
		{CPUs: 1, MaxCPUs: 256, Memory: gibibyte},
		{CPUs: 1, Memory: gibibyte + 1},
		{CPUs: 1, Memory: 0},
		{CPUs: 1, Memory: gibibyte, MaxMemory: gibibyte / 2},
	} {
		if z, err := s.sizes(host, nil, nil); err == nil || !strings.Contains(err.Error(), "settings of machines") {
			t.Errorf("%+v has the sizes %+v: %v", s, z, err)
		}
	}
	for key, values := range map[string][]string{
		"cpus":   {"", "0", "-1", "5", "1.5", "two", "99999999999999999999"},
		"memory": {"", "1", "127Mi", "9Gi", "-1Gi", "1gi", "1.5Gi", "Gi", "99999999999999Gi", "2147483648"},
	} {
		for _, value := range values {
			s := defaults
			z, err := s.sizes(host, map[string]string{annotationPrefix + key: value}, nil)
			if err == nil || !strings.Contains(err.Error(), annotationPrefix+key) {
				t.Errorf("%s=%q has the sizes %+v: %v", key, value, z, err)
			}
		}
	}
	s := defaults
	if z, err := s.sizes(host, nil, []byte(`{"memory":{"limit":"1"}}`)); err == nil {
		t.Errorf("malformed limits give the sizes %+v", z)
	}
}
