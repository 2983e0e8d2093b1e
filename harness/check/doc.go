// Package check judges a history: it rebuilds who owned each address at every
// committed write and compares pods, endpoints and bits as sets. It shares no
// rule with the cleaner it judges and never touches a cluster.
//
// Two orders meet here. Writes have a revision, which is exact. Attachments
// have a time. The audit log places a write between two times, so of a write
// and an attachment it is sometimes unknown which came first. Nobody is
// accused in that case: a write breaks an attachment only if it surely
// overlaps the attachment's life. What cannot be decided for lack of records
// is Unknown, and Unknown never passes.
package check
