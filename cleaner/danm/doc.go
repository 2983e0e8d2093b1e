// Package danm holds DANM's v1 objects as they are on the wire, in both API
// groups, and typed access to them. It keeps no bitmap arithmetic and decides
// nothing.
package danm
