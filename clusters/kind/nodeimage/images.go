package nodeimage

import (
	"fmt"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// entrypoints say where programs are in their images. The manifests of kubeadm
// call kube-proxy by its path and the others by name.
var entrypoints = map[string]string{
	"kube-apiserver":          "usr/local/bin/kube-apiserver",
	"kube-controller-manager": "usr/local/bin/kube-controller-manager",
	"kube-scheduler":          "usr/local/bin/kube-scheduler",
	"kube-proxy":              "usr/local/bin/kube-proxy",
	"etcd":                    "usr/local/bin/etcd",
	"coredns":                 "coredns",
	"pause":                   "pause",
}

// rootFolders is the part of Debian's root that kube-proxy needs under it:
// iptables, nft and conntrack with their libraries.
func rootFolders() []string {
	folders := []string{"bin", "sbin", "lib", "usr/bin", "usr/sbin", "etc/alternatives", "etc/ld.so.cache", "etc/ld.so.conf", "etc/ld.so.conf.d"}
	if runtime.GOARCH == "amd64" {
		return append(folders, "lib64", "usr/lib64", "usr/lib/x86_64-linux-gnu")
	}
	return append(folders, "usr/lib/aarch64-linux-gnu", "usr/lib/ld-linux-aarch64.so.1")
}

// planImages pairs the tags that kubeadm asks for with programs. sandbox is one
// more tag of pause, that containerd asks for.
func planImages(tags []string, sandbox, root string, programs map[string]string) ([]containerImage, error) {
	var images []containerImage
	for _, tag := range append(tags, sandbox) {
		name, _, _ := strings.Cut(path.Base(tag), ":")
		inside, known := entrypoints[name]
		program := programs[name]
		if !known || program == "" {
			return nil, fmt.Errorf("planning images: no program is known for %s", tag)
		}
		image := containerImage{tag: tag, program: filepath.Clean(program), path: inside}
		if name == "kube-proxy" {
			image.root, image.folders = root, rootFolders()
		}
		images = append(images, image)
	}
	return images, nil
}
