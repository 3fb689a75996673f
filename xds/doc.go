// Package xds takes a gateway's policy from a control plane.
package xds

// PolicyType is the type of the resources that gateways take, controlpb.PolicyFile.
const PolicyType = "type.googleapis.com/forebay.control.v1.PolicyFile"
