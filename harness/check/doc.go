// Package check judges a history: it rebuilds who owned each address at every
// committed write and compares pods, endpoints and bits as sets. It shares no
// rule with the cleaner it judges and never touches a cluster.
package check
