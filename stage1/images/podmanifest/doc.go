// Package podmanifest reads the pod directory of rkt, which is the working directory. It
// reads the apps and volumes of the pod's manifest, the image manifests of apps that the
// pod's manifest does not describe, and the numbers of users and groups in an app's root.
//
// It uses encoding/json and only the fields that stage1s need, because the App Container
// library is several times the size of a stage1. It makes the directories of empty volumes
// and changes nothing else. It does not interpret isolators and cannot execute an app.
package podmanifest
