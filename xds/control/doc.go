// Package control is the control plane: it gives the files of a folder to gateways,
// Envoy proxies and gRPC clients over xDS.
//
// Goal: the same files give the same versions, so that several instances need no
// common state. A mistake in a file is told with file, line, setting and reason, and
// what was served before goes on. A client that refuses a version is sent that
// version once.
//
// Streams and caches are those of go-control-plane. Added here: Set, which also holds
// resources of our own type; guard, which keeps a refused version from being sent
// without end; nodes, which remembers how far each client is; trial, which gives a
// new version to some clients first.
//
// Non-goals: to decide anything about requests, to find endpoints (the files name
// them), and to keep state between two runs.
//
// Ownership: the caller of New runs Server.Run and Server.Serve, and ends them by
// their context and Server.Stop. A Set never changes.
package control
