package disk

import (
	"context"
	"errors"

	"github.com/rkt/containerd-shim-rkt-v1/pod/cgroup"
)

// Vacate frees a cgroup for Create. If pods of dead shims have processes in the cgroup dir,
// above it or below it, Vacate kills them, waits for their end, and removes their cgroups.
// The rest of these pods is left for `delete`. Vacate touches only cgroups that a record of
// this boot names by their inode. If such a cgroup belongs to a pod whose shim runs, Vacate
// returns the id of its container as holder. freed reports whether Vacate has removed a
// cgroup. dir is the directory of an InUseError.
func (s *Store) Vacate(ctx context.Context, dir string) (holder string, freed bool, err error) {
	var errs []error
	for _, state := range []string{dirPrepare, dirRun, dirExited} {
		names, err := readNames(s.path(state, ""))
		errs = append(errs, err)
		for _, name := range names {
			if !isUUID(name) {
				continue
			}
			holder, done, err := s.vacate(ctx, state, name, dir)
			if holder != "" {
				return holder, freed, nil
			}
			freed = freed || done
			errs = append(errs, err)
		}
	}
	return "", freed, errors.Join(errs...)
}

func (s *Store) vacate(ctx context.Context, state, uuid, dir string) (holder string, freed bool, err error) {
	d, err := s.open(state, uuid)
	if err != nil {
		return "", false, nil // the pod is gone, or its record is damaged, which its own `delete` reports
	}
	defer d.close()
	if current, err := d.thisBoot(); err != nil || !current {
		return "", false, err
	}
	for id, record := range d.cgroups() {
		if record.Inode == 0 || !cgroup.Overlaps(record.Dir(), dir) {
			continue
		}
		g, err := cgroup.FromRecord(record)
		if err != nil || g.Replaced() {
			continue
		}
		if alive, err := d.shimLives(); err != nil || alive {
			return id, false, err
		}
		if err := vacate(ctx, g); err != nil {
			return "", freed, err
		}
		freed = true
	}
	return "", freed, nil
}

// cgroups returns the cgroups on record, by the id of their container or sandbox.
func (d *Dir) cgroups() map[string]cgroup.Record {
	all := map[string]cgroup.Record{}
	names, _ := d.apps()
	for _, name := range names {
		if a, err := d.openApp(name); err == nil && a.record.Cgroup != nil {
			all[a.record.ID] = *a.record.Cgroup
		}
	}
	if f, err := d.openSandbox(); err == nil && f.record.Cgroup != nil {
		all[f.record.ID] = *f.record.Cgroup
	}
	return all
}

func vacate(ctx context.Context, g *cgroup.Group) error {
	if ours, err := g.Take(ctx); err != nil || !ours {
		return err
	}
	if err := g.End(ctx); err != nil {
		return errors.Join(err, g.Release())
	}
	return nil
}
