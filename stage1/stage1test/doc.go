// Package stage1test makes stage1 images for tests: a manifest, and shell
// scripts as entrypoints. Such a stage1 isolates nothing; it does exactly what a
// test wants to see handled, good or bad, through the real interface.
//
//	dir := stage1test.Dir(t, stage1test.Scripts{
//		abi.AppAdd: `echo 'no such thing' >&3; exit 5`,
//	})
//	image, err := store.Image(ctx, dir, "")
//
// It is imported by tests only.
package stage1test
