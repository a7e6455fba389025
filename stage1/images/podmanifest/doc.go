// Package podmanifest reads the pod directory of rkt, which is the working directory: the
// apps and volumes of the pod's manifest, the manifests of images for apps that it does not
// describe, and the numbers of users and groups in an app's root.
//
// It uses encoding/json and the few fields that stage1s need: App Container's own library is
// several times the size of a stage1. It makes the directories of empty volumes and changes nothing
// else; it knows neither isolators nor a way to execute an app.
package podmanifest
