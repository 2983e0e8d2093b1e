// Package ipam does the arithmetic of DANM's address bitmaps: address to bit
// and back, the base64 wire form, and which bits are reserved. It knows no
// Kubernetes object and changes nothing but the values it is given.
package ipam
