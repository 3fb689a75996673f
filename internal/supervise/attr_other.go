//go:build !linux

package supervise

import "syscall"

// childAttr gives the child its own process group. Without a death signal, the
// child ends with its parent through its standard input alone.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
