package rktabi

import "testing"

func TestControllersInNoHierarchyAreNotShown(t *testing.T) { // section 12
	for shown, text := range map[string]string{
		"": "",
		"#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t41\t1\npids\t10\t41\t1\n":              "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t41\t1\nnet_cls\t0\t17\t1\npids\t10\t41\t1\n",
		"#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t41\t1\nmemory\t1\t41\t0\nrdma 3 1 1\n": "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t1\t41\t1\nmemory\t1\t41\t0\nperf_event 0 1 1\nrdma 3 1 1\n",
	} {
		if got := mountedControllers(text); got != shown {
			t.Errorf("of %q is shown %q, want %q", text, got, shown)
		}
	}
}
