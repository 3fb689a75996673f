// Package xds takes a gateway's policy from a control plane.
//
// Goal: a gateway follows its control plane live, and serves on without it. What
// comes is taken as a whole by the function that New is given, or refused with a
// reason and without a change. What was taken is kept in a file, so that a gateway
// that starts while the control plane is gone begins with it.
//
// A Client opens one stream for one type, PolicyType: in the protocol of changes
// (delta) first, and in the other (state of the world) where the server does not know
// that one. A control plane that lies, repeats itself or sends too much is refused;
// one that is gone is asked again with growing pauses.
//
// Non-goals: what a policy says (package policy), and how a gateway takes it (the
// command line's reload). The control plane is package control.
//
// Ownership: the caller of New runs Client.Run and ends it by its context. State may
// be called from any goroutine.
package xds

// PolicyType is the type of the resources that gateways take, controlpb.PolicyFile.
const PolicyType = "type.googleapis.com/forebay.control.v1.PolicyFile"
