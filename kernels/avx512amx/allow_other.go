//go:build !(linux && amd64) || purego

package avx512amx

// Allow reports that the functions here may not be called: only Linux is asked.
func Allow() bool { return false }
