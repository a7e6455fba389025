// Package podmanifest reads what a stage1 finds in the directory of a pod of rkt's:
// the apps and volumes of the pod's manifest, what the images say of apps that it says
// nothing of, and what names of users and groups mean in an app's root.
//
// The pod's directory is the working directory. All of it is read with encoding/json
// into the few fields that stage1s need: App Container's own library is several times
// the size of a stage1. It makes the directories of empty volumes and changes nothing
// else; it knows neither isolators nor a way to execute an app.
package podmanifest
