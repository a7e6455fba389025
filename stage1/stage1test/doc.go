// Package stage1test makes stage1 images for tests: a manifest, and shell
// scripts as entrypoints. Such a stage1 isolates nothing. A test writes scripts
// that behave as it needs, well or badly, and the shim calls them through the
// real interface.
//
//	dir := stage1test.Dir(t, stage1test.Scripts{
//		abi.AppAdd: `echo 'no such thing' >&3; exit 5`,
//	})
//	image, err := store.Image(ctx, dir, "")
//
// It is imported by tests only.
package stage1test
