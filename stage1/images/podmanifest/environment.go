package podmanifest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Env returns the environment in the manifest.
func (a *App) Env() []string {
	env := make([]string, 0, len(a.Environment)+6) // with room for the variables that RktEnv adds
	for _, v := range a.Environment {
		env = append(env, v.Name+"="+v.Value)
	}
	return env
}

// RktEnv returns the environment of the app with this name, and rkt's additions: the name,
// and the variables that every program expects.
func (a *App) RktEnv(name string) []string {
	env := append(a.Env(), "AC_APP_NAME="+name)
	for _, v := range [...]Variable{
		{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		{"SHELL", "/bin/sh"}, {"USER", "root"}, {"LOGNAME", "root"}, {"HOME", "/root"},
	} {
		if !slices.ContainsFunc(a.Environment, func(own Variable) bool { return own.Name == v.Name }) {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	return env
}

// EnterEnv returns the environment of a program that is executed in an app later: that of
// the app's file or, without the file, that of the manifest, and the caller's TERM.
func EnterEnv(name string) ([]string, error) {
	var env []string
	if text, err := os.ReadFile(filepath.Join("stage1/rootfs/rkt/env", name)); err == nil {
		env = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	} else {
		m, err := Read()
		if err != nil {
			return nil, err
		}
		a, err := m.Named(name)
		if err != nil {
			return nil, err
		}
		env = a.App.RktEnv(name)
	}
	if term, ok := os.LookupEnv("TERM"); ok {
		env = append(env, "TERM="+term)
	}
	return env, nil
}
