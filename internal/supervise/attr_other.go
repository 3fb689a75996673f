//go:build !linux

package supervise

import "syscall"

// childAttr gives the child a process group of its own. There is no death signal
// here, so only the end of its standard input makes the child end with its parent.
func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
