// Package cleaner is the controller that releases the addresses which dead
// pods left behind: observe, decide, release. All its I/O is here; it never
// acts on a name, an unconfirmed cache entry or a failed read.
package cleaner
