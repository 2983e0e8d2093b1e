// Package hollow is a node without containers: it keeps its Lease and status,
// watches its pods, attaches and detaches them through package danmcni, and
// reports them Running, as a kubelet with DANM would. It starts no process, and
// what a power loss may leave behind it leaves behind.
package hollow
