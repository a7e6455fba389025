package hold

// ProgramFor returns the program of an architecture that may not be this one.
func ProgramFor(arch string) ([]byte, error) { return programFor(arch) }
