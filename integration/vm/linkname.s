// Lets the package declare functions whose bodies the linker finds elsewhere.
