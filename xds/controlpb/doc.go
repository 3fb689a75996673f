// Package controlpb holds the messages of Forebay's control plane, generated from
// control.proto. A number of a field is never used for something else.
package controlpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative control.proto
