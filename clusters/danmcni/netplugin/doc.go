// Package netplugin is the CNI plugin danm-cni: it has package danmcni reserve
// the addresses of a pod and the reference plugins put them on interfaces. It
// touches no link, address or route itself and hands out no address.
package netplugin
