// Package deploy holds the manifests that install the cleaner, as a kustomize
// base with overlays, and those of DANM's API that a test cluster needs. It
// installs nothing: the caller brings the client, and a production cluster
// keeps the CRDs that came with its DANM.
package deploy
