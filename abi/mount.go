package abi

// ReadOnly reports whether the options of a mount in a spec make it read-only. The last word counts.
func ReadOnly(options []string) (is bool) {
	for _, o := range options {
		switch o {
		case "ro", "rro":
			is = true
		case "rw", "rrw":
			is = false
		}
	}
	return is
}
