// Package danmcni performs DANM's CNI ADD and DEL against the API: the same
// requests in the same order, with the same gaps in which a node may die. It
// configures no interface and repairs nothing that DANM itself leaves broken.
package danmcni
